# A page of the whole run, to be opened in a browser.


rule explorer:
    input:
        counts="<results>/counts.parquet",
        certificates="<results>/certificates.parquet",
        images="<results>/images.csv",
        classes=EXPERIMENT.config["dataset"]["classes"] or [],
        pixels="<images>/images.npy" if EXPERIMENT.explorer()["pictures"] else [],
        denoised=[
            f"<results>/denoised/sigma{sigma}.npz"
            for sigma in EXPERIMENT.explorer()["closeups"]
        ],
    output:
        report(
            "<results>/explorer.html",
            caption="../report/explorer.rst",
            category="Explorer",
            labels={"page": "explorer"},
        ),
    log:
        "<logs>/explorer.log",
    benchmark:
        "<benchmarks>/explorer.tsv"
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        explorer=EXPERIMENT.explorer(),
    script:
        "../../scripts/explorer.py"
