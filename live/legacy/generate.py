"""Make the gRPC code again: ``python -m live.legacy.generate [FOLDER]``."""

import sys
from pathlib import Path

HERE = Path(__file__).parent


def generate(folder: Path) -> None:
    """Write the generated modules below *folder* as ``live/legacy/worker_pb2*.py``."""
    from grpc_tools import protoc  # type: ignore[import-untyped, unused-ignore]

    root = HERE.parents[1]
    proto = HERE.relative_to(root) / "worker.proto"
    out = [f"--python_out={folder}", f"--pyi_out={folder}", f"--grpc_python_out={folder}"]
    code = protoc.main(["protoc", f"-I{root}", *out, str(proto)])
    if code:
        raise SystemExit(f"protoc ended with {code}")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parents[1])
