"""Which legs start when, and on which slots."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.errors import DeviceError
from parity.schedule import Grant, Need, Schedule, Slots, check_room, packed, start_now


def order(needs: list[Need], slots: Slots) -> list[str]:
    return [place.need.name for place in packed(needs, slots).places]


def test_start_now__later_legs_take_the_room_that_is_left() -> None:
    needs = [Need("tp4", 4), Need("tp3", 3), Need("tp1", 1)]
    assert start_now(needs, Slots(8)) == [Grant("tp4", 4), Grant("tp3", 3), Grant("tp1", 1)]
    assert start_now(needs, Slots(5)) == [Grant("tp4", 4), Grant("tp1", 1)]


def test_start_now__gpus_are_given_once() -> None:
    needs = [Need("x", 2, cuda=True), Need("y", 1, cuda=True), Need("z", 1, cuda=True), Need("cpu", 1)]
    assert start_now(needs, Slots(1, ("0", "1", "5"))) == [
        Grant("x", 2, ("0", "1")),
        Grant("y", 1, ("5",)),
        Grant("cpu", 1),
    ]


def test_check_room__every_leg_that_cannot_start_has_a_line() -> None:
    with pytest.raises(DeviceError) as raised:
        check_room([Need("tp16", 16), Need("ok", 2), Need("gpu", 2, cuda=True)], Slots(8, ("0",)))
    assert raised.value.exit_code == 4
    first, second = raised.value.lines
    assert "legs.tp16: needs 16 ranks" in first
    assert "room for 8" in first
    assert "legs.gpu: needs 2 GPUs, this machine has 1" in second


def test_packed__of_unknown_length_more_ranks_start_first_and_equals_as_given() -> None:
    needs = [Need("b", 2), Need("tp1", 1), Need("a", 2), Need("tp4", 4)]
    assert order(needs, Slots(4)) == ["tp4", "b", "a", "tp1"]


def test_packed__the_longest_starts_first_though_it_has_fewer_ranks() -> None:
    needs = [Need("wide", 2, seconds=1), Need("long", 1, seconds=3), Need("short", 1, seconds=1)]
    schedule = packed(needs, Slots(2))
    assert schedule.places[0].need.name == "long"
    assert (schedule.makespan, schedule.bound, schedule.device_time) == (4, 3, 6)


def test_packed__takes_another_order_where_the_longest_first_leaves_gaps() -> None:
    """Longest first runs a beside b, then c, then d: 6. Most device-seconds first: a beside c, then d beside b."""
    needs = [Need("a", 2, seconds=3), Need("b", 1, seconds=3), Need("c", 2, seconds=2), Need("d", 3, seconds=1)]
    assert packed(needs, Slots(4)).makespan == 5


def test_packed__baselines_start_first_where_candidates_wait_for_them() -> None:
    needs = [Need("candidate", 2, seconds=9), Need("baseline", 1, seconds=1, early=True)]
    assert order(needs, Slots(2)) == ["baseline", "candidate"]


def test_packed__slots_that_no_leg_needs_cost_nothing() -> None:
    assert packed([Need("a", 2, seconds=1), Need("b", 1, seconds=1)], Slots(1 << 60)).places[1].slots == ("2",)


def test_packed__a_leg_that_never_fits_is_refused() -> None:
    with pytest.raises(DeviceError, match=r"legs\.big"):
        packed([Need("big", 3)], Slots(2))


@st.composite
def suites(draw: st.DrawFn) -> tuple[list[Need], Slots]:
    slots = Slots(draw(st.integers(1, 8)), tuple(f"gpu-{n}" for n in range(draw(st.integers(1, 8)))))
    needs = []
    for number in range(draw(st.integers(0, 12))):
        cuda = draw(st.booleans())
        ranks = draw(st.integers(1, len(slots.gpus) if cuda else slots.cpu))
        # Whole seconds, so that sums are exact.
        needs.append(Need(f"leg-{number}", ranks, cuda, float(draw(st.integers(0, 100))), draw(st.booleans())))
    return needs, slots


def moments(schedule: Schedule) -> set[float]:
    return {place.start for place in schedule.places}


@given(suites())
def test_packed__every_leg_runs_once_on_as_many_slots_as_it_has_ranks(suite: tuple[list[Need], Slots]) -> None:
    needs, slots = suite
    schedule = packed(needs, slots)
    assert sorted(place.need.name for place in schedule.places) == sorted(need.name for need in needs)
    for place in schedule.places:
        there = set(slots.gpus) if place.need.cuda else {str(number) for number in range(slots.cpu)}
        assert len(set(place.slots)) == place.need.ranks
        assert set(place.slots) <= there


@given(suites())
def test_packed__no_slot_is_given_twice_at_a_time(suite: tuple[list[Need], Slots]) -> None:
    schedule = packed(*suite)
    for at in moments(schedule):
        running = [place for place in schedule.places if place.start <= at < place.end]
        held = [(place.need.cuda, slot) for place in running for slot in place.slots]
        assert len(set(held)) == len(held)


@given(suites())
def test_packed__takes_at_most_twice_the_least_time_there_could_be(suite: tuple[list[Need], Slots]) -> None:
    schedule = packed(*suite)
    assert schedule.bound <= schedule.makespan <= 2 * schedule.bound


@given(suites())
def test_packed__what_starts_first_is_what_starts_now(suite: tuple[list[Need], Slots]) -> None:
    """The run starts legs in the schedule's order, and so as the schedule says, if each takes as long as expected."""
    needs, slots = suite
    places = packed(needs, slots).places
    grants = {grant.name: grant for grant in start_now([place.need for place in places], slots)}
    for place in places:
        if place.start == 0 and place.need.seconds and place.need.name in grants:
            assert not place.need.cuda or grants[place.need.name].gpus == place.slots
