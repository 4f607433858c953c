# Adaptive Diffusion Denoised Smoothing: the paper's tables and figures from nothing.
from snakemake.utils import min_version

min_version("9.14")


include: "workflow/rules/source.smk"


configfile: own("config/config.yaml")


include: "workflow/rules/common.smk"


report: "workflow/report/workflow.rst"


pathvars:
    results=EXPERIMENT.results,
    images=EXPERIMENT.folder("images"),
    diffusion=EXPERIMENT.folder("diffusion"),
    classifier=EXPERIMENT.folder("classifier"),
    compiled=EXPERIMENT.folder("compiled"),
    resources=EXPERIMENT.resources,
    logs=f"logs/{EXPERIMENT.name}",
    benchmarks=f"benchmarks/{EXPERIMENT.name}",


include: "workflow/rules/images.smk"
include: "workflow/rules/models.smk"
include: "workflow/rules/certify.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/monitor.smk"


rule all:
    default_target: True
    input:
        [f"<results>/{name}" for name in EXPERIMENT.targets()],
    localrule: True


onstart:
    require_gpu()
    require_files()


onsuccess:
    show_summary()
