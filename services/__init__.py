"""The deployables: one composition root each, thin over the library."""

from longstride.loading import expect_many_modules

expect_many_modules()  # here, because all that a service loads comes after its package
