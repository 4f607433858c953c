# Two pages of the whole run, to be opened in a browser: the report, and the explorer of its images.


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
        mem_mb=asking("mem_mb", EXPERIMENT.needs_of_results()),
        runtime=asking("runtime", EXPERIMENT.needs_of_results()),
    params:
        explorer=EXPERIMENT.explorer(),
    script:
        "../../scripts/explorer.py"


rule report_page:
    input:
        [f"<results>/{name}" for name in EXPERIMENT.report_shows()],
        claims=(
            "<results>/tables/claims.csv" if "claims" in EXPERIMENT.tables() else []
        ),
        provenance="<results>/provenance.json",
        config="<results>/config.yaml",
    output:
        "<results>/report.html",
    log:
        "<logs>/report.log",
    benchmark:
        "<benchmarks>/report.tsv"
    localrule: True
    conda:
        "../../envs/adds.yaml"
    params:
        report=EXPERIMENT.report(),
    script:
        "../../scripts/report.py"
