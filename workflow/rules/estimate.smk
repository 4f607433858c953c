# What the run will cost, before it is begun: snakemake estimate


rule estimate:
    log:
        "<logs>/estimate.log",
    localrule: True
    conda:
        "../../envs/adds.yaml"
    params:
        settings=estimated_settings(),
        leaders=leaders(),
        counts=f"results/{config['experiment']}/counts",
    script:
        "../../scripts/estimate.py"
