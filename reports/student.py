"""Student's t and the binomial, exact to double precision, so that no report needs scipy.

The regularised incomplete beta function by Lentz's continued fraction (DLMF 8.17.22) gives every
distribution used here. scipy would add about 110 MB to the core install for these few lines; the
tests hold them against published tables and, for whole degrees of freedom, against the closed
sums of Abramowitz & Stegun 26.7.3-4.
"""

import math
from collections.abc import Callable
from functools import lru_cache

_TINY = 1e-300
_EPS = 1e-15


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    h = d
    for m in range(1, 5000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + numerator * d
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = 1.0 + numerator / c
            c = c if abs(c) > _TINY else _TINY
            h *= d * c
        if abs(d * c - 1.0) < _EPS:
            break
    return h


def beta_cdf(x: float, a: float, b: float) -> float:
    """Return I_x(a, b), the regularised incomplete beta function, for a, b > 0."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    front = math.exp(log_front)
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, 1.0 - x) / b


def t_sf(t: float, df: float) -> float:
    """Return P(T > t) for Student's t with *df* > 0 degrees of freedom, whole or not."""
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    square = t * t
    if square < df:  # here 1 - x would lose what tells t from 0
        tail = 0.5 - 0.5 * beta_cdf(square / (df + square), 0.5, df / 2.0)
    else:
        tail = 0.5 * beta_cdf(df / (df + square), df / 2.0, 0.5)
    return tail if t >= 0 else 1.0 - tail


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """Return t with P(T <= t) = *p* for *df* degrees of freedom."""
    if not 0.0 < p < 1.0 or df <= 0:
        raise ValueError(f"need 0 < p < 1 and df > 0, got p={p}, df={df}")
    if p < 0.5:
        return -t_quantile(1.0 - p, df)
    if p == 0.5:
        return 0.0
    high = 1.0
    while t_sf(high, df) > 1.0 - p:
        high *= 2.0
    return _bisect(lambda t: t_sf(t, df) - (1.0 - p), 0.0, high)


def binomial_bounds(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return the exact (Clopper-Pearson) interval of a share; (0, 1) where there is no trial."""
    if trials <= 0:
        return 0.0, 1.0
    tail = (1.0 - confidence) / 2.0
    k, n = successes, trials
    low = 0.0 if k == 0 else _bisect(lambda p: tail - beta_cdf(p, k, n - k + 1), 0.0, k / n)
    high = 1.0 if k == n else _bisect(lambda p: (1 - tail) - beta_cdf(p, k + 1, n - k), k / n, 1.0)
    return low, high


def _bisect(falling: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(200):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        if falling(middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0
