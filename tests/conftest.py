"""Settings for every test."""

from hypothesis import HealthCheck, settings

# Two shared cores: how long an example takes says nothing.
settings.register_profile("parity", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("parity")
