"""Adaptive Diffusion Denoised Smoothing (ADDS) and the methods it is compared with, with sound certificates.

Certify one digit, with the networks that the project publishes:

    >>> from adds.certificates.certificate import certify
    >>> from adds.data.digits import load_split
    >>> from adds.data.images import Picture
    >>> from adds.models.embedded import embedded_pipeline
    >>> from adds.sampling.sampler import Sampler
    >>> sampler = Sampler("adds", embedded_pipeline("weights/digits"), sigma=0.5, votes=5)
    >>> _, test = load_split()
    >>> picture = Picture.of(test.images[0], number=int(test.numbers[0]))
    >>> selection = sampler.count(picture, stage="selection", limit=100).counts
    >>> estimation = sampler.count(picture, stage="estimation", limit=400).counts
    >>> print(certify(selection=selection, estimation=estimation, sigma=0.5, alpha=0.001))
    Certificate(prediction=6, abstained=..., radius=..., p_lower=..., p_upper=...)

The packages stand in the order of the data: registry and experiment (what there is, and what a configuration means),
machine, data, diffusion, models, methods, certificates, sampling, results, monitor. Each imports only from those before
it. Where to find the paper: Algorithm 1 and Proposition 3.1 are in `adds.methods.privacy`, Algorithm 2 in
`adds.methods.adds`, Theorem 3.3 in `adds.certificates.bounds`, the other methods under their names in `adds.methods`.
"""

import warnings

# guided_diffusion still uses torch's old names of two autocast decorators.
warnings.filterwarnings("ignore", category=FutureWarning, module="guided_diffusion")

__version__ = "0.1.0"
