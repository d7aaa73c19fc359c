"""What the compiling of the simulator rests on; that its numbers are equal it checks itself."""

import pytest

from zerolayer import compiled


def test_every_module_to_compile_is_there_once():
    assert [m for m in compiled.MODULES if not (compiled.ROOT / f"{m}.py").is_file()] == []
    assert sorted(set(compiled.MODULES)) == list(compiled.MODULES)


def test_without_a_compiler_it_says_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        compiled.build(tmp_path / "out")
    assert ended.value.code == 2
    assert "no C compiler" in capsys.readouterr().err
