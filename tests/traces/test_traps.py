"""What real logs do to a reader: each trap that the formats are known for, and what is right."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import traces
from dispatch.errors import InputError
from tests.traces.format_samples import SAMPLES, lines
from traces.trace import CACHED, FAILED, OUTPUT_ESTIMATED, PROMPT_ESTIMATED, Trace

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens"
Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(content: str | bytes) -> Path:
        path = tmp_path / "log"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return put


def codes(trace: Trace) -> set[str]:
    return {quirk.code for quirk in trace.quirks}


def text_of(trace: Trace, code: str) -> str:
    return next(quirk.text for quirk in trace.quirks if quirk.code == code)


def refused(path: Path, **how: Any) -> str:
    with pytest.raises(InputError) as error:
        traces.read(path, **how)
    return str(error.value)


# -- bytes and lines -------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_last_newline_and_byte_order_mark_change_nothing(
    write: Write, end: str, last: bool, mark: bytes
) -> None:
    rows = (HEAD, "2031-01-02 09:00:00.0000000,5,6", "2031-01-02 09:00:01.5000000,7,8")
    trace = traces.read(write(mark + (end.join(rows) + (end if last else "")).encode()))
    assert trace.arrival_s.tolist() == [0.0, 1.5]
    assert trace.output_tokens.tolist() == [6, 8]


def test_seven_digit_fractions_keep_the_seventh_digit(write: Write) -> None:
    trace = traces.read(
        write(f"{HEAD}\n2031-01-02 09:00:00.0000001,5,6\n2031-01-02 09:00:00.0000008,7,8\n")
    )
    assert trace.arrival_s[1] == pytest.approx(7e-7, abs=1e-12)


def test_two_time_formats_in_one_file_are_both_read(write: Write) -> None:
    trace = traces.read(
        write(f"{HEAD}\n2031-01-02 09:00:00+00:00,5,6\n2031-01-02 09:00:00.250001+00:00,7,8\n"
              "2031-01-02T09:00:01Z,7,8\n")
    )  # fmt: skip
    assert trace.arrival_s.tolist() == pytest.approx([0, 0.250001, 1])


def test_a_zone_other_than_utc_shifts_the_time(write: Write) -> None:
    trace = traces.read(
        write(f"{HEAD}\n2031-01-02 09:00:00+00:00,5,6\n2031-01-02 11:00:01+02:00,7,8\n")
    )
    assert trace.arrival_s.tolist() == [0, 1]


def test_a_bad_row_is_named_by_the_line_an_editor_shows_though_lines_are_empty(
    write: Write,
) -> None:
    said = refused(write(f"{HEAD}\n2031-01-02 09:00:00,5,6\n\n\n2031-01-02 09:00:01,x,6\n"))
    assert "log: line 5: ContextTokens is no number" in said


def test_a_quoted_field_over_two_lines_is_named_by_its_first_line(write: Write) -> None:
    said = refused(
        write('arrival_s,input_tokens,output_tokens,model\n1,5,6,"a\nb"\n2,-5,6,"c\nd"\n')
    )
    assert "line 4: input_tokens is negative" in said


def test_the_first_ten_bad_rows_and_their_count_are_told(write: Write) -> None:
    rows = "".join(f"2031-01-02 09:00:{i:02d},0,6\n" for i in range(15))
    said = refused(write(f"{HEAD}\n{rows}2031-01-02 09:01:00,5,6\n"))
    assert said.count("ContextTokens is 0") == 10
    assert "line 11" in said
    assert "line 12" not in said
    assert "15 of 16 rows bad" in said
    assert "--skip-bad" in said


def test_skipped_rows_are_counted_and_lie_in_the_side_file_with_line_and_reason(
    write: Write, tmp_path: Path
) -> None:
    side = tmp_path / "bad"
    path = write(f"{HEAD}\n2031-01-02 09:00:00,5,6\n2031-01-02 09:00:01,nan,6\nshort\n")
    trace = traces.read(path, skip_bad=side)
    assert len(trace) == 1
    assert "2 bad rows left out" in text_of(trace, "bad_rows")
    first, second = side.read_text().splitlines()
    assert first.startswith("line 3\t")
    assert first.endswith("\t2031-01-02 09:00:01,nan,6")
    assert second.startswith("line 4\thas 1 field where")


def test_no_side_file_is_left_where_the_rest_is_refused(write: Write, tmp_path: Path) -> None:
    path = write(f"{HEAD}\n2031-01-02 09:00:05,5,6\nbad\n2031-01-02 09:00:01,5,6\n")
    refused(path, skip_bad=tmp_path / "bad")
    assert not (tmp_path / "bad").exists()


def test_a_file_of_bad_rows_only_is_refused_even_when_they_may_be_skipped(write: Write) -> None:
    assert "check the format" in refused(write(f"{HEAD}\nx,1,1\ny,1,1\n"), skip_bad=True)


# -- times -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("hole", ["", "null", "-", "NaN"])
def test_a_missing_time_is_never_zero(write: Write, hole: str) -> None:
    said = refused(write(f"{HEAD}\n2031-01-02 09:00:00,5,6\n{hole},5,6\n"))
    assert "line 3: TIMESTAMP is missing; a missing time is not 0" in said


def test_dates_and_times_since_a_start_in_one_file_are_refused(write: Write) -> None:
    rows = [{"timestamp": t, "input_length": 5, "output_length": 5} for t in (1.9e9, 3.0, 1.91e9)]
    said = refused(write(lines(*rows)))
    assert "mixes times since 1970" in said
    assert "the fewer are lines 2" in said


def test_two_units_of_dates_in_a_table_are_refused(write: Write) -> None:
    said = refused(write("ts,input_tokens,output_tokens\n1925110800,5,6\n1925110801000,5,6\n"))
    assert "in ms; those above are in s" in said


def test_a_number_that_counts_from_nowhere_asks_for_its_unit(write: Write) -> None:
    said = refused(write("ts,input_tokens,output_tokens\n0,5,6\n1500,5,6\n"))
    assert "--unit" in said


@pytest.mark.parametrize(("unit", "span"), [("s", 1500.0), ("ms", 1.5), ("us", 1.5e-3)])
def test_the_unit_is_what_the_caller_says(write: Write, unit: Any, span: float) -> None:
    trace = traces.read(write("ts,input_tokens,output_tokens\n0,5,6\n1500,5,6\n"), unit=unit)
    assert trace.span_s == pytest.approx(span)


def test_seconds_and_milliseconds_of_one_shape_are_told_apart_by_their_gaps(write: Write) -> None:
    def rows(*times: float) -> bytes:
        return lines(*({"timestamp": t, "input_length": 5, "output_length": 5} for t in times))

    assert traces.read(write(rows(0, 0.25, 3.1))).span_s == pytest.approx(3.1)
    assert traces.read(write(rows(0, 250, 3100))).span_s == pytest.approx(3.1)


def test_dates_in_milliseconds_and_in_seconds_are_told_apart_by_their_size(write: Write) -> None:
    for factor in (1, 1000, 1_000_000):
        rows = [{"timestamp": (1_925_110_800 + t) * factor, "input_length": 5, "output_length": 5,
                 "hash_ids": [1]} for t in (0, 2)]  # fmt: skip
        assert traces.read(write(lines(*rows))).span_s == pytest.approx(2.0)


def test_times_beyond_2100_ask_whether_the_unit_is_right(write: Write) -> None:
    said = refused(write("arrived_at,num_prefill_tokens,num_decode_tokens\n1,5,6\n5e9,5,6\n"))
    assert "after the year 2100" in said
    assert "--unit" in said


def test_rows_out_of_order_in_an_arrival_log_are_refused_and_sorted_on_demand(
    write: Write,
) -> None:
    path = write("arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,1\n9,2,2\n8,3,3\n10,4,4\n")
    said = refused(path)
    assert "line 4: arrives 1 s before" in said
    assert "--order sort" in said
    trace = traces.read(path, order="sort")
    assert trace.prompt_tokens.tolist() == [1, 3, 2, 4]
    assert "unordered" in codes(trace)


def test_a_log_in_completion_order_is_sorted_by_arrival(write: Write) -> None:
    sample = SAMPLES["envoy"].splitlines(keepends=True)
    trace = traces.read(write(sample[2] + sample[0] + sample[1]))
    assert trace.prompt_tokens.tolist() == [700, 1500, 60]
    assert "completion order" in text_of(trace, "unordered")


def test_a_clock_that_starts_again_is_refused_and_laid_end_to_end_on_demand(write: Write) -> None:
    times = (0, 10, 20, 0, 10, 20)
    rows = "".join(f"{t},{i + 1},5\n" for i, t in enumerate(times))
    path = write(f"arrived_at,num_prefill_tokens,num_decode_tokens\n{rows}")
    said = refused(path)
    assert "line 5: the clock starts again" in said
    assert "--order append" in said
    trace = traces.read(path, order="append")
    assert trace.prompt_tokens.tolist() == [1, 2, 3, 4, 5, 6]
    assert trace.arrival_s.tolist() == [0, 10, 20, 30, 40, 50]
    assert "restarted_clock" in codes(trace)


def _ticks(step_ms: int) -> bytes:
    return lines(
        *({"timestamp": step_ms * (i // 4), "input_length": 512, "output_length": 9,
           "hash_ids": [i]} for i in range(80))
    )  # fmt: skip


def test_ties_of_a_coarse_clock_are_spread_inside_their_tick_by_seed_and_said(
    write: Write,
) -> None:
    path = write(_ticks(3000))
    one, same, other = (traces.read(path, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.arrival_s, same.arrival_s)
    assert not np.array_equal(one.arrival_s, other.arrival_s)
    assert len(np.unique(one.arrival_s)) == 80
    assert one.prompt_tokens.tolist() == [512] * 80
    recorded = traces.read(path, spread=False)
    late = one.arrival_s - recorded.arrival_s + (one.arrival_s[0] - recorded.arrival_s[0])
    assert np.abs(late).max() <= 3.0
    assert "3 s apart: a coarse clock" in text_of(one, "ties")
    assert any("its clock is no finer" in text for text in one.cannot_tell)


def test_rows_of_one_tick_keep_their_order(write: Write) -> None:
    trace = traces.read(write(_ticks(3000)))
    assert trace.blocks(5) == (5,)
    assert [trace.blocks(i)[0] for i in range(80)] == list(range(80))


def test_ties_on_a_fine_clock_are_left_as_they_are(write: Write) -> None:
    trace = traces.read(write(_ticks(7)))
    assert len(np.unique(trace.arrival_s)) == 20
    assert "ties" not in codes(trace)


# -- values ----------------------------------------------------------------------------------------


def test_numbers_as_text_are_numbers_and_dashes_are_holes(write: Write) -> None:
    trace = traces.read(write(SAMPLES["envoy"]))
    assert trace.prompt_tokens.tolist() == [700, 1500, 60]
    assert trace.session is None or (trace.session < 0).all()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("0", "is 0; a request has at least one token"),
        ("-3", "is negative"),
        ("nan", "is missing"),
        ("inf", "is not finite"),
        ("1.5", "is not a whole number"),
        ("1e12", "is no request"),
        ("many", "is no number"),
        ("", "is missing"),
    ],
)
def test_a_length_that_is_none_is_refused_with_its_line(
    write: Write, value: str, reason: str
) -> None:
    said = refused(write(f"{HEAD}\n2031-01-02 09:00:00,5,6\n2031-01-02 09:00:01,{value},6\n"))
    assert "line 3: ContextTokens" in said
    assert reason in said


def test_an_empty_file_and_a_header_alone_are_refused(write: Write) -> None:
    assert "is empty" in refused(write(""))
    assert "is empty" in refused(write("\n\n  \n"))
    assert "holds no request" in refused(write(f"{HEAD}\n"))


def test_zero_output_marks_a_failure_in_burstgpt_and_its_length_is_estimated(write: Write) -> None:
    rows = SAMPLES["burstgpt"] + b"50,,1,GPT-4,90,0,90,API log\n60,,1,GPT-4,0,0,0,API log\n"
    trace = traces.read(write(rows))
    assert trace.status is not None
    assert trace.status.tolist() == [0, 0, 0, FAILED, FAILED]
    assert trace.estimated is not None
    assert trace.estimated.tolist() == [0, 0, 0, OUTPUT_ESTIMATED,
                                        OUTPUT_ESTIMATED | PROMPT_ESTIMATED]  # fmt: skip
    assert set(trace.output_tokens[3:].tolist()) <= {40, 9, 200}
    assert "mean absolute error" in text_of(trace, "output_missing")
    assert any("failed requests would have needed" in text for text in trace.cannot_tell)


def test_requests_without_lengths_on_one_line_draw_lengths_of_their_own(write: Write) -> None:
    spans = [
        {"traceId": "t", "spanId": f"{i}", "startTimeUnixNano": str(10**18 + i * 10**9),
         "attributes": {"gen_ai.operation.name": "chat",
                        **({"gen_ai.usage.input_tokens": i + 1, "gen_ai.usage.output_tokens": i + 1}
                           if i < 30 else {"error.type": "timeout"})}}
        for i in range(60)
    ]  # fmt: skip
    trace = traces.read(write(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})))
    assert len(set(trace.output_tokens[30:].tolist())) > 5


def test_one_bad_span_of_an_export_costs_one_span(write: Write) -> None:
    text = SAMPLES["otel-otlp"].decode().replace('"intValue": "1500"', '"intValue": "-1500"')
    path = write(text)
    assert "1 of 3 rows bad" in refused(path)
    assert len(traces.read(path, skip_bad=True)) == 2


@pytest.mark.parametrize("broken", ["1.5", "[3]", '"x"'])
def test_an_export_that_is_no_list_of_spans_is_a_bad_row(write: Write, broken: str) -> None:
    path = write('{"resourceSpans": [{"scopeSpans": [{"spans": ' + broken + "}]}]}")
    assert "line 1: spans" in refused(path)


def test_answers_from_a_cache_never_reached_a_gpu_and_are_left_out(write: Write) -> None:
    sample = SAMPLES["litellm"].decode().replace('"cache_hit": "False"', '"cache_hit": "True"', 1)
    path = write(sample)
    trace = traces.read(path)
    assert trace.prompt_tokens.tolist() == [1500, 60]
    assert "never reached a GPU" in text_of(trace, "cached_answers")
    kept = traces.read(path, cached=True)
    assert kept.status is not None
    assert kept.status.tolist() == [CACHED, 0, 0]


def test_a_repeated_request_id_counts_once(write: Write) -> None:
    sample = SAMPLES["litellm"]
    trace = traces.read(write(sample + sample.splitlines(keepends=True)[0]), order="sort")
    assert len(trace) == 3
    assert "duplicates" in codes(trace)


def test_a_retried_request_counts_once_and_is_told(write: Write) -> None:
    sample = SAMPLES["nginx"].decode()
    sample = sample.replace('"upstream_status": "200"', '"upstream_status": "502, 200"', 1)
    trace = traces.read(write(sample))
    assert len(trace) == 3
    assert "1 request took several tries" in text_of(trace, "retries")


def test_nginx_arrival_is_completion_less_request_time(write: Write) -> None:
    trace = traces.read(write(SAMPLES["nginx"]))
    assert trace.arrival_s.tolist() == pytest.approx([0, 0.25, 3.1])
    assert trace.ttft_s is not None
    assert trace.ttft_s.tolist() == pytest.approx([0.2, 0.2, 0.2])


def test_lengths_from_bytes_state_their_error(write: Write) -> None:
    trace = traces.read(write(SAMPLES["nginx"]))
    assert trace.estimated is not None
    assert (trace.estimated == (PROMPT_ESTIMATED | OUTPUT_ESTIMATED)).all()
    assert "a factor of 2 either way" in text_of(trace, "output_estimated")
    halved = traces.read(write(SAMPLES["nginx"]), output_bytes=260.0)
    assert halved.output_tokens.sum() < trace.output_tokens.sum()


def test_requests_refused_as_invalid_are_no_load(write: Write) -> None:
    sample = (
        SAMPLES["envoy"].decode().replace('"response_code": "200"', '"response_code": "401"', 1)
    )
    trace = traces.read(write(sample))
    assert len(trace) == 2
    assert "invalid_requests" in codes(trace)


def test_health_checks_are_no_requests(write: Write) -> None:
    sample = SAMPLES["envoy"].decode().replace('"POST"', '"GET"', 1)
    assert len(traces.read(write(sample))) == 2


def test_sglang_events_of_one_request_are_one_and_unfinished_ones_are_kept(write: Write) -> None:
    events = SAMPLES["sglang-log"].splitlines(keepends=True)
    path = write(b"".join(e for e in events if b"finished" not in e or b"r2" not in e))
    trace = traces.read(path)
    assert len(trace) == 3
    assert "1 request received, but not finished" in text_of(trace, "unfinished")
    assert trace.source_row is not None
    assert (trace.source_row > 0).all()


def test_a_span_inside_another_is_the_same_request(write: Write) -> None:
    outer, *rest = (json.loads(line) for line in SAMPLES["otel"].splitlines())
    inner = {**outer, "spanId": "child", "parentSpanId": outer["spanId"]}
    assert len(traces.read(write(lines(outer, inner, *rest)))) == 3


def test_a_timeless_file_is_refused_unless_a_rate_is_given(write: Write) -> None:
    path = write(SAMPLES["lengths"])
    assert "--rate" in refused(path)
    trace = traces.read(path, rate_per_s=2.0)
    assert trace.arrival_s[0] == 0
    assert "Poisson arrivals at 2/s" in text_of(trace, "made_arrivals")


def test_a_vllm_log_has_no_output_lengths_and_can_only_be_described(write: Write) -> None:
    path = write(SAMPLES["vllm-log"])
    assert "no row has the length of its output" in refused(path)
    about = traces.describe(traces.read(path, partial=True))
    assert about["output_tokens"] is None
    assert about["prompt_tokens"]["max"] == 1500


def test_vllm_burstiness_is_the_shape_of_the_gaps(write: Write) -> None:
    run = json.loads(SAMPLES["vllm-bench"])
    run |= {"burstiness": 0.25, "request_rate": 10.0, "completed": 20_000,
            "input_lens": [5] * 20_000, "output_lens": [5] * 20_000, "errors": []}  # fmt: skip
    about = traces.describe(traces.read(write(json.dumps(run))))
    assert about["cv"] == pytest.approx(2.0, rel=0.05)
    assert about["rate_per_s"] == pytest.approx(10.0, rel=0.05)


def test_block_sizes_are_those_of_the_lengths_where_a_file_differs(write: Write) -> None:
    rows = [{"timestamp": i, "input_length": 64 * (i + 1), "output_length": 5,
             "hash_ids": list(range(i + 1))} for i in range(9)]  # fmt: skip
    assert traces.read(write(lines(*rows))).block_tokens == 64


def test_the_same_piece_of_a_prompt_behind_another_is_another_block(write: Write) -> None:
    rows = SAMPLES["ragpulse"].decode().replace('"passages_ids": [9]', '"passages_ids": [8]', 1)
    trace = traces.read(write(rows))
    first, second = trace.blocks(0), trace.blocks(1)
    assert first[:2] == second[:2]
    assert not set(first[2:]) & set(second[2:])


# -- foreign bytes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [950, 990, 5_000, 100_000])
@pytest.mark.parametrize("closed", [True, False])
def test_json_nested_beyond_reason_is_a_bad_line(write: Write, depth: int, closed: bool) -> None:
    said = refused(write('{"a":' * depth + ("1" + "}" * depth if closed else "")))
    assert "line 1: is " in said or "is in no known trace format" in said
    if depth >= 5_000:
        assert "line 1: is JSON nested too deeply" in said


def test_one_line_nested_beyond_reason_among_good_ones_is_named(write: Write) -> None:
    path = write(SAMPLES["mooncake"] + b'{"a":' * 5_000 + b"\n")
    assert "line 4: is JSON nested too deeply" in refused(path)
    assert len(traces.read(path, skip_bad=True)) == 3


def test_an_array_nested_beyond_reason_is_refused(write: Write) -> None:
    assert "nested too deeply" in refused(write('[{"a":' + "[" * 5_000 + "]" * 5_000 + "}]"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_wide_text_is_told_and_how_to_convert_it(write: Write, encoding: str) -> None:
    said = refused(write(SAMPLES["azure"].decode().encode(encoding)))
    assert f"looks like {encoding.upper()[:6]}" in said
    assert "iconv -f UTF-" in said


def test_other_binary_data_is_still_only_binary(write: Write) -> None:
    assert "holds binary data" in refused(write(bytes(range(1, 256)) + b"\0" * 9))


def test_lines_that_end_in_cr_alone_are_told_and_how_to_convert_them(write: Write) -> None:
    said = refused(write(SAMPLES["azure"].replace(b"\n", b"\r")))
    assert "has lines that end in CR alone" in said
    assert r"tr '\r' '\n'" in said


@pytest.mark.parametrize("year", ["0001", "1969", "2300", "9999"])
@pytest.mark.parametrize("head", [HEAD, "ts,input_tokens,output_tokens"])
def test_a_date_of_another_age_is_out_of_range(write: Write, year: str, head: str) -> None:
    said = refused(write(f"{head}\n{year}-01-02 09:00:00,5,6\n"))
    assert f"is out of range: '{year}-01-02 09:00:00'" in said


def test_a_day_that_no_calendar_has_is_said_as_such(write: Write) -> None:
    said = refused(write(f"{HEAD}\n2031-02-30 09:00:00,5,6\n"))
    assert "is no date or time of day" in said


def test_a_common_log_date_of_another_age_is_out_of_range(write: Write) -> None:
    row = {"time_local": "02/Jan/9999:09:00:00 +0000", "request_time": 1, "status": 200}
    assert "is out of range" in refused(write(lines(row)))


# -- streamed or not -------------------------------------------------------------------------------


def _answers(**more: str) -> bytes:
    """Return five answers of 122 streamed tokens each, at 130 bytes a token."""
    return lines(
        *({"msec": 1.9e9 + i, "request_time": 2.0, "status": 200, "request_length": 900,
           "bytes_sent": 122 * 130, **more} for i in range(5))
    )  # fmt: skip


def test_nginx_says_that_it_cannot_tell_streamed_answers_and_how_wrong_that_may_be(
    write: Write,
) -> None:
    trace = traces.read(write(_answers()))
    said = text_of(trace, "output_estimated")
    wrong = trace.output_tokens[0] / 122
    assert f"5 of them may be {round(wrong)} times too high" in said
    assert "give --output-bytes 130" in said
    assert any(
        text.startswith("whether an answer was streamed: 5 of 5 lines lack sent_http_content_type")
        for text in trace.cannot_tell
    )


def test_the_way_out_that_nginx_names_gives_the_true_lengths(write: Write) -> None:
    trace = traces.read(write(_answers()), output_bytes=130.0)
    assert trace.output_tokens.tolist() == [122] * 5
    assert "times too" not in text_of(trace, "output_estimated")


@pytest.mark.parametrize(
    ("more", "tokens"),
    [
        ({"sent_http_content_type": "text/event-stream; charset=utf-8"}, 122),
        ({"sent_http_content_type": "application/json"}, 3524),
        ({"upstream_header_time": "0.2", "upstream_response_time": "2.0"}, 122),
        ({"upstream_header_time": "1.9", "upstream_response_time": "2.0"}, 3524),
    ],
)
def test_the_fields_that_decide_whether_an_answer_was_streamed(
    write: Write, more: dict[str, str], tokens: int
) -> None:
    trace = traces.read(write(_answers(**more)))
    assert trace.output_tokens.tolist() == [tokens] * 5
    assert not any("streamed" in text for text in trace.cannot_tell)


def test_envoy_says_how_wrong_answers_are_that_were_not_streamed(write: Write) -> None:
    rows = [json.loads(line) for line in SAMPLES["envoy"].splitlines()]
    for row in rows:
        row["gen_ai.usage.output_tokens"] = "-"
    trace = traces.read(write(lines(*rows)))
    assert "3 of them may be 29 times too low" in text_of(trace, "output_estimated")
    whole = traces.read(
        write(lines(*({**row, "response_content_type": "application/json"} for row in rows)))
    )
    assert whole.output_tokens.sum() > 20 * trace.output_tokens.sum()
    assert not any("streamed: " in text for text in whole.cannot_tell)
