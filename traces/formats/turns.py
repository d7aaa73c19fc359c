"""Turns that wait for the answer before them: what a trace says of them, and what it cannot."""

from traces.trace import Quirk, counted


def dependent(turns: int) -> tuple[Quirk, ...]:
    """Say how turns without a time of their own were placed; nothing where there are none."""
    if not turns:
        return ()
    text = (
        f"{counted(turns, 'turn')} with a delay after the answer before and no time: placed that "
        "delay after its predecessor's arrival, the earliest it can be"
    )
    return (Quirk("dependent_turns", text, turns),)
