"""Student's t distribution, compared with scipy."""

import pytest
from scipy import special

from k8sdds.results import student

DEGREES = (1, 1.3, 2, 2.7, 3, 5, 7.5, 17.2, 100, 1000)


@pytest.mark.parametrize("df", DEGREES)
def test_survival_and_quantile_agree_with_scipy(df):
    for t in (1e-3, 0.1, 1, 2, 5, 30, 1e3, 1e5):
        assert student.survival(t, df) == pytest.approx(special.stdtr(df, -t), rel=1e-11, abs=1e-300)
        assert student.survival(-t, df) == pytest.approx(special.stdtr(df, t), rel=1e-11)
    for p in (0.51, 0.6, 0.9, 0.975, 0.999, 1 - 1e-6, 1 - 1e-10):
        assert student.quantile(p, df) == pytest.approx(special.stdtrit(df, p), rel=1e-11)


@pytest.mark.parametrize("df", DEGREES)
def test_noncentrality_has_the_power(df):
    for p in (0.95, 0.975, 0.9995):
        critical = student.quantile(p, df)
        delta = student.noncentrality(critical, df, 0.8)
        if delta < 100:  # scipy's series needs too many terms beyond
            assert special.nctdtr(df, delta, critical) == pytest.approx(0.2, rel=1e-10)
