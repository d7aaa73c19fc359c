"""``zerolayer validate``: tables read by content, the split, the bars, measured data."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dispatch.errors import InputError
from scenarios import estimate
from scenarios.measured import Measured, read_folder
from scenarios.predict import predict
from scenarios.split import held_out
from scenarios.validate import BARRED, EVERY, Line, bar_of, lines, validate
from zerolayer.cli import main

DataFile = Callable[[str], Path]


def whole_model_table(path: Path, factor: float = 1.0) -> Path:
    """Write a table in Splitwise's format whose times are *factor* times the model's own."""
    rows = []
    for gpu, name in (("A100-80G", "a100-80gb"), ("H100-80G", "h100-80gb")):
        for prompt, batch in ((128, 1), (1024, 1), (512, 8)):
            made = predict("llama-2-70b", gpu, tp=8, prompt=prompt, batch=batch)
            rows.append({
                "model": "llama2-70b", "hardware": name, "tensor_parallel": 8,
                "prompt_size": prompt, "batch_size": batch, "token_size": 128,
                "prompt_time": made.prompt.total_s * 1e3 * factor,
                "token_time": made.token.total_s * 1e3 * factor, "e2e_time": 0.0,
            })  # fmt: skip
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def line(found: list[Line], kind: str, gpu: str) -> Line:
    return next(x for x in found if (x.kind, x.gpu, x.note) == (kind, gpu, BARRED))


def test_a_table_made_by_the_model_has_no_error(tmp_path: Path) -> None:
    whole_model_table(tmp_path / "times.csv")
    found = validate(tmp_path)
    for kind in ("prompt", "token"):
        assert line(list(found.lines), kind, EVERY).median == pytest.approx(0.0, abs=1e-9)
    assert found.holds


def test_a_table_a_quarter_slower_misses_its_bar_by_a_fifth(tmp_path: Path) -> None:
    whole_model_table(tmp_path / "times.csv", 1.25)
    found = validate(tmp_path)
    one = line(list(found.lines), "prompt", EVERY)
    assert one.median == pytest.approx(0.2)
    assert one.bias == pytest.approx(-0.2)
    assert one.holds is False
    assert not found.holds


def test_a_file_that_the_fit_has_not_read_is_held_out_whole(tmp_path: Path) -> None:
    whole_model_table(tmp_path / "times.csv")
    one = line(list(validate(tmp_path).lines), "token", EVERY)
    assert one.held_out_rows == one.rows == 6
    assert one.left_out != one.left_out  # said of the fit's own table alone


def test_a_files_kind_follows_from_its_columns_and_not_from_its_name(tmp_path: Path) -> None:
    whole_model_table(tmp_path / "anything.csv")
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR0")
    (tmp_path / "log.jsonl").write_text('{"text": "hello"}\n')
    found, unread = read_folder(tmp_path)
    assert [item.kind for item in found] == ["whole"]
    assert {u.path.name for u in unread} == {"notes.csv", "broken.parquet", "log.jsonl"}


def test_power_capped_rows_are_left_out_and_said_to_be_synthetic(tmp_path: Path) -> None:
    path = whole_model_table(tmp_path / "times.csv")
    table = pd.read_csv(path)
    capped = table.assign(hardware="h100-80gb-pcap", prompt_time=1.0)
    pd.concat([table, capped]).to_csv(path, index=False)
    found, unread = read_folder(tmp_path)
    assert len(found[0].table) == 6
    assert "synthetic" in unread[0].why


def test_repeats_are_reduced_to_their_median(tmp_path: Path) -> None:
    path = whole_model_table(tmp_path / "times.csv")
    table = pd.read_csv(path)
    odd = table.assign(prompt_time=table.prompt_time * 50)
    pd.concat([table, table, odd]).to_csv(path, index=False)
    assert validate(tmp_path).holds


def test_an_operator_table_of_the_model_itself_has_no_error() -> None:
    table = pd.DataFrame({
        "gpu": "A100-80G", "op": "gemm", "m": [1, 256, 4096], "n": [8192] * 3, "k": [4096] * 3,
        "precision": "fp16",
    })  # fmt: skip
    table["us"] = estimate.estimate("gemm", "vidur", table)
    item = Measured("gemm", "vidur", Path(__file__), table)
    (one,) = lines([item])
    assert one.median == pytest.approx(0.0, abs=1e-12)


def test_message_sizes_of_aiconfigurator_count_elements_of_two_bytes(tmp_path: Path) -> None:
    pd.DataFrame({
        "op_name": "all_reduce", "device": "NVIDIA H100 80GB HBM3", "nccl_dtype": "half",
        "num_gpus": [8], "message_size": [8_388_608], "latency": [0.1223],
    }).to_csv(tmp_path / "nccl.csv", index=False)  # fmt: skip
    (item,), _ = read_folder(tmp_path)
    assert item.table.bytes.tolist() == [2 * 8_388_608]
    (one,) = lines([item])
    assert one.median < 0.15  # 122.3 us, and 122.5 us by another benchmark at 16 MiB


def test_the_split_depends_on_the_row_and_not_on_its_place() -> None:
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"n": rng.integers(1, 9999, 400), "k": rng.integers(1, 9999, 400)})
    mixed = table.sample(frac=1.0, random_state=1)
    assert held_out("gemm", table)[mixed.index].tolist() == held_out("gemm", mixed).tolist()
    assert 0.2 < held_out("gemm", table).mean() < 0.47


def test_a_shape_is_held_out_with_all_its_rows() -> None:
    table = pd.DataFrame({"n": [4096] * 50, "k": [1024] * 50, "m": range(50)})
    assert len(set(held_out("gemm", table))) == 1


def test_bars_are_those_that_were_set() -> None:
    assert bar_of("prompt", "eager-2023", EVERY, BARRED).median == 0.05
    assert bar_of("token", "eager-2023", EVERY, BARRED).left_out == 0.07
    assert bar_of("decode_attention", "vllm", "H100-80G", "").median == 0.12
    assert bar_of("all_reduce", "apex", "H200", "nccl").median == 0.15
    assert bar_of("layer", "helix", "V100-16G", "prompt").median == 0.10


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n"])
def test_a_folder_without_a_known_table_is_refused(tmp_path: Path, text: str) -> None:
    if text:
        (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InputError, match=r"docs/cost-model\.md"):
        validate(tmp_path)


def test_a_serving_run_on_an_unknown_gpu_is_named_and_left_out(tmp_path: Path) -> None:
    whole_model_table(tmp_path / "times.csv")
    row = {"input_toks": 9, "output_toks": 9, "arrival_time": 0.0, "queued_ts": 0.0,
           "first_token_ts": 1.0, "last_token_ts": 2.0}  # fmt: skip
    (tmp_path / "run_requests.jsonl").write_text(json.dumps(row) + "\n")
    facts = {"num_requests": 1, "model": "llama-3.1-8b", "hardware": {"device_name": "Abacus"},
             "engine_kwargs": {}}  # fmt: skip
    (tmp_path / "run_meta.json").write_text(json.dumps(facts))
    found = validate(tmp_path)
    assert not found.serving
    assert any("Abacus" in u.why for u in found.unread)


def test_a_missing_folder_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["validate", "--data", str(tmp_path / "none")])
    assert caught.value.code == 2
    assert "no such folder" in capsys.readouterr().err


def test_json_and_exit_code_say_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole_model_table(tmp_path / "times.csv", 1.25)
    with pytest.raises(SystemExit) as caught:
        main(["validate", "--data", str(tmp_path), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert caught.value.code == 1
    assert found["holds"] is False
    assert {t["holds"] for t in found["tables"] if t["bar"]} == {False}


def test_the_table_for_people_fits_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole_model_table(tmp_path / "times.csv")
    with pytest.raises(SystemExit) as caught:
        main(["validate", "--data", str(tmp_path)])
    out = capsys.readouterr().out
    assert caught.value.code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "All bars hold." in out


# -- measured data, where it is present ------------------------------------------------------------


def check(data_file: DataFile, name: str) -> list[Line]:
    path = data_file(name)
    found, _ = read_folder(path.parent)
    return lines([item for item in found if item.path == path])


@pytest.mark.data
@pytest.mark.parametrize("name", [
    "vidur_a100_Llama-2-70b-hf_mlp.csv.gz", "vidur_h100_Llama-2-70b-hf_mlp.csv.gz",
    "vidur_a100_Llama-2-7b-hf_mlp.csv.gz", "vidur_a100_dgx_all_reduce.csv.gz",
    "vidur_a100_pairwise_nvlink_all_reduce.csv.gz", "apex_H100-SXM-80GB_all_reduce.csv",
    "aiconfigurator_nccl_a100_h100_h200.csv.gz", "helix_llama2_70b_a100_decode_bs2time.csv",
    "helix_llama2_70b_v100_prompt_bs2time.csv",
    "aiconfigurator_h100_sxm_generation_attention_vllm.parquet",
])  # fmt: skip
def test_measured_tables_are_met_within_their_bars(data_file: DataFile, name: str) -> None:
    for one in check(data_file, name):
        assert one.holds is not False, one


@pytest.mark.data
def test_whole_model_times_are_met_with_groups_left_out(data_file: DataFile) -> None:
    found = check(data_file, "splitwise_perf_model.csv")
    for kind, left_out in (("prompt", 0.09), ("token", 0.07)):
        assert line(found, kind, EVERY).left_out <= left_out
