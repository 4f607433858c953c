"""The small classifier for 28 x 28 grey images, as Fashion-MNIST's."""

from functools import partial

from adds.models.classifiers import small

HALVINGS, HIDDEN = (32, 64, 64), 64

build = partial(small.SmallClassifier, halvings=HALVINGS, hidden=HIDDEN)
obtain = partial(small.obtain, build=build)
load = partial(small.load, build=build)
untrained = partial(small.untrained, build=build)
