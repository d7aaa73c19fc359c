"""Reported faults of counters and life cycle: every start ends once, wherever it ends."""

from dispatch.dispatcher import Dispatcher
from dispatch.graph import TopologyGraph
from dispatch.registry import policy
from dispatch.request import Request
from tests.dispatch.core_world import GIB, World, device, devices


def test_a_finish_without_a_start_changes_no_load() -> None:
    world = World("round_robin", 3)
    assert not world.dispatcher.finished(999)
    counts = [0, 0, 0]
    for _ in range(30):
        counts[world.place()] += 1
        assert min(world.loads()) >= 0
        world.dispatcher.finished(world.last)
    assert counts == [10, 10, 10]
    assert world.dispatcher.counts.stray == 1


def test_a_finish_after_ten_minutes_takes_off_what_was_put_on() -> None:
    world = World("least_requests", 4)
    world.place()
    world.now = 601.0
    world.dispatcher.finished(world.last)
    assert world.loads() == [0, 0, 0, 0]
    assert sorted(world.place() for _ in range(4)) == [0, 1, 2, 3]


def test_a_device_that_left_and_came_back_starts_from_zero() -> None:
    world = World("least_requests", devices(1))
    graph = world.graph
    n: list[int] = []

    def record() -> None:
        n.append(int(graph.n[0]))

    world.place()
    first = world.last
    record()
    graph.remove_device(0)
    assert world.place() == -1
    graph.add_device(device("a"))
    record()
    world.place()
    second = world.last
    record()
    world.dispatcher.finished(first)
    record()
    world.dispatcher.finished(second)
    record()
    assert n == [1, 0, 1, 1, 0]
    world.dispatcher.check_books()


def test_a_cancelled_request_gives_back_its_place_and_its_memory() -> None:
    world = World("topology", 1).memory(10)
    before = float(world.graph.room[0])
    world.place(1000, 1000)
    assert float(world.graph.room[0]) < before
    world.now = 1.0
    world.dispatcher.cancelled(world.last)
    assert (world.loads(), float(world.graph.room[0])) == ([0], before)


def test_two_doors_on_one_graph_count_alike() -> None:
    graph = TopologyGraph(devices(8))
    doors = [World("prefix_hash", 8, graph=graph), World("prefix_hash", 8, graph=graph)]
    for i in range(16):
        door = doors[i % 2]
        request = Request(i, 0.0, 512, 16, block_hashes=(42,))
        assert door.dispatcher.submit(request).device >= 0
    assert max(door.graph.n.max() for door in doors) <= 4


def test_a_request_counts_from_its_dispatch_not_from_its_first_token() -> None:
    world = World("least_requests", 4)
    for _ in range(8):
        world.place(32_000, 1)
    assert world.loads() == [2, 2, 2, 2]


def test_a_prefill_replica_is_charged_its_prompt_and_freed_at_the_first_token() -> None:
    world = World("least_work", [device("p", role="prefill")])
    world.place(1000, 1500)
    graph = world.graph
    assert (graph.prompt_tokens[0], graph.output_tokens[0], graph.n[0]) == (1000, 0, 1)
    world.dispatcher.first_token(world.last)
    assert (graph.prompt_tokens[0], graph.prefill_tokens[0], graph.n[0]) == (0, 0, 0)
    world.dispatcher.check_books()


def test_two_simultaneous_arrivals_never_choose_the_same_idle_device() -> None:
    for order in ((0, 1), (1, 0)):
        graph = TopologyGraph(devices(2))
        for i in range(2):
            graph.observe_memory(i, 60 * GIB, 60 * GIB, 0.0)
        doors = [Dispatcher(policy("topology"), graph, lambda: 0.0) for _ in range(2)]
        picks = [doors[i].submit(Request(i, 0.0, 100, 100)).device for i in order]
        assert sorted(picks) == [0, 1]


def test_dispatchers_with_credit_of_their_own_can_meet_on_a_device() -> None:
    graph = TopologyGraph(devices(2))
    fork = graph.fork()
    for i in range(2):
        graph.observe_memory(i, 60 * GIB, 60 * GIB, 0.0)
    doors = [Dispatcher(policy("topology"), g, lambda: 0.0) for g in (graph, fork)]
    picks = [[d.submit(Request(i, 0.0, 100, 100)).device for i in range(2)] for d in doors]
    assert picks == [[0, 1], [0, 1]]


def test_a_duplicate_finish_is_counted_and_changes_nothing() -> None:
    world = World("least_requests", 2)
    world.place()
    assert world.dispatcher.finished(world.last)
    assert not world.dispatcher.finished(world.last)
    assert (world.loads(), world.dispatcher.counts.stray) == ([0, 0], 1)


def test_a_late_finish_of_an_earlier_attempt_does_not_end_the_next() -> None:
    world = World("least_requests", 2)
    request = world.request()
    world.dispatcher.submit(request)
    world.dispatcher.failed(request.id, fault=True)
    again = Request(request.id, 0.0, 100, 100, attempt=1)
    world.dispatcher.submit(again)
    assert not world.dispatcher.finished(request.id, attempt=0)
    assert sum(world.loads()) == 1
    assert world.dispatcher.finished(request.id, attempt=1)


def test_no_rounding_of_reservations_is_left_over_when_all_have_ended() -> None:
    fleet = devices(1, kv_bytes_per_token=0.1)
    world = World("topology", fleet).memory(1)
    for prompt in range(1, 200, 7):
        world.place(prompt, 3)
    for request_id in range(1, world.last + 1, 2):
        world.dispatcher.finished(request_id)
    for request_id in range(2, world.last + 1, 2):
        world.dispatcher.finished(request_id)
    assert world.graph.reserved[0] == 0.0
    assert world.graph.room[0] == GIB
