"""The mathematics of diffusion: takes any callable for a network, opens no file."""
