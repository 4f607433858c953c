"""Bayes' rule with images weighted so that it aims at the radius (`adds.models.classifiers.kernel`)."""

from adds.methods.direct import DirectReader

_reader = DirectReader("radius_kernel")
vote, posterior, work = _reader.vote, _reader.posterior, _reader.work
