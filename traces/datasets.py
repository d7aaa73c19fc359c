"""Public traces by name: where a copy may lie on this machine, and where they come from."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dispatch.errors import InputError, UnknownNameError


@dataclass(frozen=True, slots=True)
class Dataset:
    """A public trace: its upstream file, licence and size, and the digest of the plain bytes.

    ``url`` is pinned to a commit where the publisher has commits. ``sha256`` is empty and the size
    0 where we have no copy to take them from; such a file is fetched unchecked, and that is said.
    """

    name: str
    file: str
    url: str
    sha256: str
    size_bytes: int
    licence: str
    about: str


_AZURE: Final = (
    "https://raw.githubusercontent.com/Azure/AzurePublicDataset/"
    "b469a113cedca53ddc3bdea71a143dc4b7d8700c/data/"
)
_AZURE_2024: Final = (
    "https://github.com/Azure/AzurePublicDataset/releases/download/dataset-llm-2024/"
)
_DYNAMO: Final = "CC-BY-4.0 (attribution: DynamoLLM, HPCA'25)"
_MOONCAKE: Final = (
    "https://raw.githubusercontent.com/kvcache-ai/Mooncake/"
    "3b5a594133958449a1feaf1c9e0fc1b553e34a28/FAST25-release/traces/"
)
_CC_BY: Final = "CC-BY-4.0 (attribution: Splitwise, ISCA'24)"

_ALL: Final = (
    Dataset(
        "azure-2023-conv", "AzureLLMInferenceTrace_conv.csv",
        _AZURE + "AzureLLMInferenceTrace_conv.csv",
        "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8",
        719_188, _CC_BY, "Azure LLM inference, conversation, one hour of 2023: 19,366 requests",
    ),
    Dataset(
        "azure-2023-code", "AzureLLMInferenceTrace_code.csv",
        _AZURE + "AzureLLMInferenceTrace_code.csv",
        "54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6",
        320_117, _CC_BY, "Azure LLM inference, coding, one hour of 2023: 8,819 requests",
    ),
    Dataset(
        "azure-2024-conv", "AzureLLMInferenceTrace_conv_1week.csv",
        _AZURE_2024 + "AzureLLMInferenceTrace_conv_1week.csv", "", 0, _DYNAMO,
        "Azure LLM inference, conversation, one week of 2024: 27,303,999 requests",
    ),
    Dataset(
        "azure-2024-code", "AzureLLMInferenceTrace_code_1week.csv",
        _AZURE_2024 + "AzureLLMInferenceTrace_code_1week.csv",
        "71de5c55cbc35f8f1ed0b6b7806b4cd1e9764b0058469725a6aac98023a1448f",
        691_989_454, _DYNAMO,
        "Azure LLM inference, coding, one week of 2024: 16,803,695 requests",
    ),
    Dataset(
        "burstgpt-3", "BurstGPT_3.csv",
        "https://github.com/HPMLL/BurstGPT/releases/download/v2.0/BurstGPT_3.csv", "", 0,
        "CC-BY-4.0", "BurstGPT, third part, with sessions: 5,344,021 requests",
    ),
    Dataset(
        "mooncake-conversation", "conversation_trace.jsonl",
        _MOONCAKE + "conversation_trace.jsonl",
        "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df",
        3_029_533, "Apache-2.0", "Mooncake (FAST'25), conversation: 12,031 requests with blocks",
    ),
    Dataset(
        "mooncake-toolagent", "toolagent_trace.jsonl", _MOONCAKE + "toolagent_trace.jsonl", "", 0,
        "Apache-2.0", "Mooncake (FAST'25), tools and agents: 23,608 requests with blocks",
    ),
)  # fmt: skip

DATASETS: Final = {dataset.name: dataset for dataset in _ALL}

# Copies of one upstream file travel under more than one name.
_ALIASES: Final = {"conversation_trace.jsonl": ("mooncake_conversation_trace.jsonl",)}


def cache_folder() -> Path:
    """Return the user's cache of fetched traces: ``$XDG_CACHE_HOME/zerolayer`` or the like."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "zerolayer" / "traces"


def folders() -> Iterator[Path]:
    """Yield the folders that are searched, in order; those that do not exist are left out."""
    places = [Path(text) for text in [os.environ.get("ZEROLAYER_DATA", "")] if text]
    places += [Path.cwd().parent / "shared" / "data"]
    places += [Path(__file__).resolve().parents[2] / "shared" / "data", cache_folder()]
    seen: set[Path] = set()
    for place in places:
        if place not in seen and place.is_dir():
            seen.add(place)
            yield place


def dataset(name: str) -> Dataset:
    """Return the public trace of that *name*; UnknownNameError names the near miss."""
    if name not in DATASETS:
        raise UnknownNameError("trace", "public trace", name, DATASETS)
    return DATASETS[name]


def search(file: str) -> Path | None:
    """Return the first file of that name, plain or compressed, at any depth of the folders."""
    for folder in folders():
        if (found := search_in(folder, file)) is not None:
            return found
    return None


def search_in(folder: Path, file: str) -> Path | None:
    """Return the first file of that name, plain or compressed, at any depth of *folder*."""
    names = (file, *_ALIASES.get(file, ()))
    found = {path.name: path for path in sorted(folder.rglob("*"), reverse=True)}
    for name in [name + end for name in names for end in ("", ".gz", ".zst")]:
        if name in found and found[name].is_file():
            return found[name]
    return None


def find(name: str) -> Path:
    """Return where the public trace *name* lies; the error says where it comes from."""
    known = dataset(name)
    found = search(known.file)
    if found is None:
        searched = ", ".join(str(place) for place in folders()) or "no folder"
        raise InputError.at(
            name,
            f"{known.file} (plain or .gz) is not on this machine; searched {searched}",
            f"put a copy under $ZEROLAYER_DATA, or `zerolayer trace fetch {name}`; "
            f"it comes from {known.url}, {known.licence}",
        )
    return found
