# The paper's two tables; what few images can still tell: the true class's probability, two bounds on the same counts; what
# sequential sampling needs; and the paper's claims with their verdicts.


rule tables:
    input:
        certificates="<results>/certificates.parquet",
        counts="<results>/counts.parquet",
        paper=EXPERIMENT.config["paper_tables"] or [],
    output:
        multiext("<results>/tables/certified_accuracy", ".csv", ".md", ".tex"),
        multiext("<results>/tables/clean_accuracy", ".csv", ".md", ".tex"),
        certified=report(
            "<results>/tables/certified_accuracy.html",
            category="Tables",
            labels={"table": "certified accuracy"},
        ),
        clean=report(
            "<results>/tables/clean_accuracy.html",
            category="Tables",
            labels={"table": "clean accuracy"},
        ),
    log:
        "<logs>/tables.log",
    benchmark:
        "<benchmarks>/tables.tsv"
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=asking("mem_mb", EXPERIMENT.needs_of_results()),
        runtime=asking("runtime", EXPERIMENT.needs_of_results()),
    params:
        tables={
            **EXPERIMENT.samples(),
            "bound": EXPERIMENT.config["bound"],
            "partial_of": EXPERIMENT.partial_of,
        },
    script:
        "../../scripts/tables.py"


rule comparisons:
    input:
        certificates="<results>/certificates.parquet",
        counts="<results>/counts.parquet",
    output:
        multiext("<results>/tables/true_class_probability", ".csv", ".md", ".tex"),
        multiext("<results>/tables/bounds", ".csv", ".md", ".tex"),
        multiext("<results>/tables/average_certified_radius", ".csv", ".md", ".tex"),
        probability=report(
            "<results>/tables/true_class_probability.html",
            category="Tables",
            labels={"table": "probability of the true class"},
        ),
        bounds=report(
            "<results>/tables/bounds.html",
            category="Tables",
            labels={"table": "gain of the pair bound"},
        ),
        radius=report(
            "<results>/tables/average_certified_radius.html",
            category="Tables",
            labels={"table": "average certified radius"},
        ),
    log:
        "<logs>/comparisons.log",
    benchmark:
        "<benchmarks>/comparisons.tsv"
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=asking("mem_mb", EXPERIMENT.needs_of_results()),
        runtime=asking("runtime", EXPERIMENT.needs_of_results()),
    params:
        tables={
            **EXPERIMENT.samples(),
            "partial_of": EXPERIMENT.partial_of,
        },
    script:
        "../../scripts/comparisons.py"


rule savings:
    input:
        counts="<results>/counts.parquet",
        certificates="<results>/certificates.parquet",
    output:
        multiext("<results>/tables/savings", ".csv", ".md", ".tex"),
        multiext("<results>/figures/samples_needed", ".pdf", ".png", ".csv"),
        table=report(
            "<results>/tables/savings.html",
            category="Tables",
            labels={"table": "samples that sequential sampling needs"},
        ),
        html=report(
            "<results>/figures/samples_needed.html",
            category="Other figures",
            labels={"figure": "samples needed"},
        ),
    log:
        "<logs>/savings.log",
    benchmark:
        "<benchmarks>/savings.tsv"
    # The longest of the jobs that end a run: first, so that the others run beside it.
    priority: 1
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=asking("mem_mb", EXPERIMENT.needs_of_results()),
        runtime=asking("runtime", EXPERIMENT.needs_of_results()),
    params:
        figure=EXPERIMENT.figure(ledgers=experiment.LEDGERS, **EXPERIMENT.samples()),
    script:
        "../../scripts/savings.py"


rule detail:
    input:
        images="<images>/images.csv",
        pixels="<images>/images.npy",
        diffusion="<diffusion>/weights",
        classifier="<classifier>/weights",
        compiled="<compiled>/asked",
    output:
        "<results>/detail.parquet",
    log:
        "<logs>/detail.log",
    benchmark:
        "<benchmarks>/detail.tsv"
    conda:
        "../../envs/adds.yaml"
    threads: 1
    resources:
        gpu=NEEDS["gpu"],
        mem_mb=NEEDS["mem_mb"],
        runtime=120,
    params:
        detail=EXPERIMENT.detail(),
        machine=machine_of,
    script:
        "../../scripts/detail.py"


rule claims:
    input:
        claims=own("config/claims.yaml"),
        published=own("config/paper_tables.csv"),
        counts="<results>/counts.parquet",
        certificates="<results>/certificates.parquet",
        detail="<results>/detail.parquet" if EXPERIMENT.compares_detail() else [],
    output:
        multiext("<results>/tables/claims", ".csv", ".md", ".tex"),
        page=report(
            "<results>/tables/claims.html",
            category="Claims",
            labels={"table": "claims"},
        ),
    log:
        "<logs>/claims.log",
    benchmark:
        "<benchmarks>/claims.tsv"
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=asking("mem_mb", EXPERIMENT.needs_of_results()),
        runtime=asking("runtime", EXPERIMENT.needs_of_results()),
    params:
        claims=EXPERIMENT.claims(),
    script:
        "../../scripts/claims.py"
