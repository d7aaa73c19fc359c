"""What a verb reads is never what it writes, by whatever name or link."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.traces.format_samples import SAMPLES
from zerolayer.cli import main

NGINX = b"upstream a { server 10.0.0.1:80; }\n"
WAYS = {
    "convert": ("trace", "convert"),
    "slice": ("trace", "slice", "--limit", "1"),
    "fit": ("trace", "fit"),
    "anonymise": ("trace", "anonymise", "--key", "a long secret"),
    "legacy import": ("legacy", "import"),
}
LINKS: dict[str, Callable[[Path, Path], None]] = {
    "hard": os.link,
    "symbolic": lambda old, new: new.symlink_to(old),
    "folder": lambda old, new: (new.parent / "way").symlink_to(old.parent),
}


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as left:
        main(list(words))
    said = capsys.readouterr().err
    assert left.value.code == 2, said
    return said


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CSV trace that is an nginx file by no stretch; each verb finds what it needs."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "own.csv"
    path.write_bytes(SAMPLES["azure"])
    return path


@pytest.mark.parametrize("way", sorted(WAYS))
def test_no_verb_writes_over_its_input(
    way: str, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = NGINX if way == "legacy import" else SAMPLES["azure"]
    own.write_bytes(before)
    assert "is the input itself" in refused(capsys, *WAYS[way], "own.csv", "-o", "own.csv")
    assert own.read_bytes() == before


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("kind", sorted(LINKS))
def test_no_verb_writes_over_its_input_through_a_link(
    way: str, kind: str, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    LINKS[kind](own, own.parent / "other.csv")
    target = "way/own.csv" if kind == "folder" else "other.csv"
    assert "is the input itself" in refused(capsys, *WAYS[way], "own.csv", "-o", target)
    assert own.read_bytes() == SAMPLES["azure"]


@pytest.mark.parametrize("number", [0, 1])
def test_a_mix_writes_over_none_of_its_inputs(
    number: int, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own.parent / "b.csv").write_bytes(SAMPLES["azure"])
    names = ["own.csv", "b.csv"]
    said = refused(capsys, "trace", "mix", *names, "-o", names[number])
    assert "is the input itself" in said


def test_a_model_is_not_written_over_by_the_trace_it_makes(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = own.parent / "m.toml"
    model.write_text("requests = 9\n")
    os.link(model, own.parent / "m.csv")
    assert "is the input itself" in refused(capsys, "trace", "synth", "m.toml", "-o", "m.csv")
    assert model.read_text() == "requests = 9\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("convert", "own.csv", "-o", "o.csv", "--bad-file", "own.csv"), "is the input itself"),
        (("describe", "own.csv", "--bad-file", "own.csv"), "is the input itself"),
        (("convert", "own.csv", "-o", "o.csv", "--bad-file", "o.csv"), "is to be written twice"),
        (("fit", "own.csv", "--picture", "own.png"), "is the input itself"),
        (("fit", "own.csv", "-o", "m.png", "--picture", "m.png"), "is to be written twice"),
    ],
)
def test_what_is_written_beside_the_target_spares_the_input_too(
    words: tuple[str, ...], said: str, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.link(own, own.parent / "own.png")
    assert said in refused(capsys, "trace", *words)
    assert own.read_bytes() == SAMPLES["azure"]


@pytest.mark.parametrize("name", [".out.parquet.part", "out.parquet.part"])
def test_an_input_named_like_an_unfinished_target_is_spared(
    name: str, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own.rename(own.parent / name)
    said = refused(capsys, "trace", "convert", name, "-o", "out.parquet")
    assert "would overwrite its input" in said
    assert (own.parent / name).read_bytes() == SAMPLES["azure"]


def test_a_public_trace_is_not_written_over_by_what_is_made_of_it(
    own: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from traces.datasets import DATASETS

    monkeypatch.setenv("ZEROLAYER_DATA", str(own.parent / "data"))
    (own.parent / "data").mkdir()
    public = own.parent / "data" / DATASETS["azure-2023-conv"].file
    public.write_bytes(SAMPLES["azure"])
    said = refused(capsys, "trace", "slice", "azure-2023-conv", "-o", str(public))
    assert "is the input itself" in said
    assert public.read_bytes() == SAMPLES["azure"]


@pytest.mark.parametrize("way", ["fit", "legacy import"])
def test_a_target_in_no_folder_is_refused(
    way: str, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, *WAYS[way], "own.csv", "-o", "none/m.toml")
    assert "none is no folder" in said
