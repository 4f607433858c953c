# What a run will do, costs, and was made by: `snakemake estimate` and `snakemake why` tell before it is begun.
# `snakemake audit` tries to show that its certificates rest on sand.


rule plan:
    output:
        "<results>/plan.json",
    log:
        "<logs>/plan.log",
    priority: 4
    localrule: True
    conda:
        "../../envs/adds.yaml"
    params:
        plan=EXPERIMENT.plan(),
        machine=machine_of,
    script:
        "../../scripts/plan.py"


rule provenance:
    input:
        certificates="<results>/certificates.parquet",
        models=EXPERIMENT.of_all_networks("description.json"),
        list=EXPERIMENT.config["dataset"]["list"],
    output:
        config="<results>/config.yaml",
        provenance="<results>/provenance.json",
    log:
        "<logs>/provenance.log",
    localrule: True
    conda:
        "../../envs/adds.yaml"
    params:
        config=EXPERIMENT.config,
    script:
        "../../scripts/provenance.py"


rule summary:
    input:
        [
            f"<results>/tables/{name}.csv"
            for name in EXPERIMENT.tables()
            if name.endswith(("_accuracy", "_probability"))
        ],
        claims=("<results>/tables/claims.md" if "claims" in EXPERIMENT.tables() else []),
        provenance="<results>/provenance.json",
    output:
        "<results>/summary.txt",
    log:
        "<logs>/summary.log",
    localrule: True
    conda:
        "../../envs/adds.yaml"
    params:
        told={
            "logs": f"logs/{EXPERIMENT.name}",
            "benchmarks": f"benchmarks/{EXPERIMENT.name}",
            "places": EXPERIMENT.places(),
            "partial_of": EXPERIMENT.partial_of,
        },
    script:
        "../../scripts/summary.py"


rule estimate:
    log:
        "<logs>/estimate.log",
    localrule: True
    conda:
        "../../envs/adds.yaml"
    params:
        config=EXPERIMENT.config,
    script:
        "../../scripts/estimate.py"


rule check:
    # Minutes on a new machine: is it right for the run, and how fast? What is wrong with it, a retry would only say again.
    log:
        "<logs>/check.log",
    retries: 0
    conda:
        "../../envs/adds.yaml"
    threads: 1
    resources:
        gpu=NEEDS["gpu"],
        mem_mb=NEEDS["mem_mb"],
        runtime=60,
    params:
        config=EXPERIMENT.config,
        machine=machine_of,
    script:
        "../../scripts/check_machine.py"


rule why:
    log:
        "<logs>/why.log",
    localrule: True
    conda:
        "../../envs/adds.yaml"
    params:
        config=EXPERIMENT.config,
    script:
        "../../scripts/why.py"


rule audit:
    input:
        images="<images>/images.csv",
        pixels="<images>/images.npy",
        diffusion="<diffusion>/weights",
        classifier="<classifier>/weights",
    log:
        "<logs>/audit.log",
    retries: 0
    conda:
        "../../envs/adds.yaml"
    threads: 1
    resources:
        gpu=NEEDS["gpu"],
        mem_mb=NEEDS["mem_mb"],
        runtime=60,
    params:
        audit=EXPERIMENT.audit(),
        machine=machine_of,
    script:
        "../../scripts/audit.py"
