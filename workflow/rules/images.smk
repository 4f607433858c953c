# Which images are certified.


rule images:
    output:
        table="<results>/images.csv",
    log:
        "<logs>/images.log",
    benchmark:
        "<benchmarks>/images.tsv"
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        dataset=config["dataset"],
        folder=f"resources/{config['models']}/images",
    script:
        "../../scripts/images.py"
