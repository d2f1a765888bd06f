"""TORAX: heat, density and current in ITER's hybrid scenario for seconds, as its example has it:
neural networks for the turbulence (QLKNN), a predictor and a corrector in each step."""

import copy

import torax
from torax.examples import iterhybrid_predictor_corrector as example

PACKAGES = ("torax",)
TOLERANCE = (1e-6, "float64, steps whose length follows from the transport")


def program():
    settings = copy.deepcopy(example.CONFIG)
    settings["numerics"]["t_final"] = 3
    config = torax.ToraxConfig.from_dict(settings)

    def simulate():
        found, _ = torax.run_simulation(config, progress_bar=False, log_timestep_info=False)
        profiles, scalars = found.children["profiles"], found.children["scalars"]
        shown = [profiles[name] for name in ("T_e", "T_i", "n_e", "q", "chi_turb_i")]
        return [x.to_numpy() for x in (*shown, scalars["P_fusion"], found["time"])]

    return simulate
