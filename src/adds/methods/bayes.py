"""Bayes' rule on y, with the training images as the prior (`adds.models.classifiers.kernel`)."""

from adds.methods.direct import DirectReader

_reader = DirectReader("kernel")
vote, posterior, work = _reader.vote, _reader.posterior, _reader.work
