from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Call(_message.Message):
    __slots__ = ("json_rpc",)
    JSON_RPC_FIELD_NUMBER: _ClassVar[int]
    json_rpc: str
    def __init__(self, json_rpc: _Optional[str] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("kind", "time_s", "tokens", "reason", "fragmentation", "handed_over_s", "preemptions", "started_s")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FRAGMENTATION_FIELD_NUMBER: _ClassVar[int]
    HANDED_OVER_S_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    STARTED_S_FIELD_NUMBER: _ClassVar[int]
    kind: int
    time_s: float
    tokens: _containers.RepeatedScalarFieldContainer[int]
    reason: str
    fragmentation: float
    handed_over_s: float
    preemptions: int
    started_s: float
    def __init__(self, kind: _Optional[int] = ..., time_s: _Optional[float] = ..., tokens: _Optional[_Iterable[int]] = ..., reason: _Optional[str] = ..., fragmentation: _Optional[float] = ..., handed_over_s: _Optional[float] = ..., preemptions: _Optional[int] = ..., started_s: _Optional[float] = ...) -> None: ...

class Question(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class About(_message.Message):
    __slots__ = ("device", "shape", "snapshot")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    device: str
    shape: str
    snapshot: str
    def __init__(self, device: _Optional[str] = ..., shape: _Optional[str] = ..., snapshot: _Optional[str] = ...) -> None: ...
