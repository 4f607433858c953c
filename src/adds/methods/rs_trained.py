"""RS as Cohen et al. did it: the classifier was trained on images with noise of the same size."""

from adds.methods.direct import DirectReader

_reader = DirectReader("noised")
vote, posterior, work = _reader.vote, _reader.posterior, _reader.work
