# Adaptive Diffusion Denoised Smoothing: the paper's tables and figures from nothing.
from snakemake.utils import min_version

min_version("9.14")


configfile: "config/config.yaml"


include: "workflow/rules/common.smk"


report: "workflow/report/workflow.rst"


pathvars:
    results=results_folder(),
    models=f"resources/{config['models']}",
    logs=f"logs/{config['experiment']}",
    benchmarks=f"benchmarks/{config['experiment']}",


include: "workflow/rules/assets.smk"
include: "workflow/rules/images.smk"
include: "workflow/rules/certify.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/estimate.smk"


rule all:
    default_target: True
    input:
        "<results>/certificates.csv",
        all_figures(),
        all_tables(),
        training_pictures(),
    localrule: True


onstart:
    require_gpu()
    write_plan()


onsuccess:
    print(summary())
