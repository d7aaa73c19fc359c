"""The legacy path, for real: HTTP, header rules, static weights, JSON-RPC, a gRPC stream, a worker.

``worker_pb2.py`` and ``worker_pb2_grpc.py`` are generated from ``worker.proto``; a test makes them
again and compares.
"""
