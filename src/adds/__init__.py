"""Adaptive Diffusion Denoised Smoothing (ADDS) and the methods it is compared with, with sound certificates.

Certify one digit, with the models that the embedded experiment trains:

    >>> from adds.assets import embedded_pipeline
    >>> from adds.certificate import certify
    >>> from adds.digits import load_split
    >>> from adds.sampling import Sampler
    >>> sampler = Sampler("adds", embedded_pipeline("resources/digits"), sigma=0.5, votes=5)
    >>> _, test = load_split()
    >>> draw = dict(image=test.images[0], index=int(test.indices[0]))
    >>> selection = sampler.count(**draw, stage="selection", limit=100).counts
    >>> estimation = sampler.count(**draw, stage="estimation", limit=400).counts
    >>> certify(selection=selection, estimation=estimation, sigma=0.5, alpha=0.001)  # doctest: +ELLIPSIS
    Certificate(prediction=..., abstained=..., radius=..., p_lower=..., p_upper=...)

Where to find the paper in the code: Algorithm 1 and Proposition 3.1 are in `adds.privacy`, Algorithm 2 in
`adds.methods.adds`, Theorem 3.3 in `adds.certificate`, the other methods under their names in `adds.methods`.
"""

import warnings

# guided_diffusion still uses torch's old names of two autocast decorators.
warnings.filterwarnings("ignore", category=FutureWarning, module="guided_diffusion")

__version__ = "0.1.0"
