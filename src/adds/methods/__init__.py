"""The paper's methods, by name. A new one is a function of `base.Method`'s form and a line here."""

from adds.methods.adds import adds, adds_oneshot
from adds.methods.base import Method
from adds.methods.carlini import carlini
from adds.methods.densepure import densepure
from adds.methods.rs import rs

METHODS: dict[str, Method] = {
    "rs": rs,
    "carlini": carlini,
    "densepure": densepure,
    "adds": adds,
    "adds_oneshot": adds_oneshot,
}
