# From images to certificates: one certify job per method, sigma, number of votes and shard of images.


rule certify:
    input:
        unpack(diffusion_model),
        images="<models>/images.csv",
        classifier="<models>/classifier.pt",
        classifier_description="<models>/classifier.json",
        leader=leader_counts,
    output:
        counts="<results>/counts/{method}/sigma{sigma}/votes{votes}/{shard}.parquet",
    log:
        "<logs>/certify/{method}/sigma{sigma}/votes{votes}/{shard}.log",
    benchmark:
        "<benchmarks>/certify/{method}/sigma{sigma}/votes{votes}/{shard}.tsv"
    # Figures can wait until the last long jobs leave cores to them.
    priority: 1
    conda:
        "../../envs/adds.yaml"
    threads: 1
    resources:
        gpu=0 if config["device"] == "cpu" else 1,
        # A retry gets more of both: schedulers kill jobs that take more than they asked for.
        mem_mb=lambda wildcards, attempt: attempt
        * (4000 if on_small_networks() else 16000),
        runtime=lambda wildcards, attempt: attempt
        * (60 if on_small_networks() else 720),
    params:
        identity=lambda wildcards: identity(
            wildcards.method, wildcards.sigma, wildcards.votes
        ),
        sampling=sampling_settings(),
        positions=lambda wildcards: positions(wildcards.shard),
        ledgers=f"results/{config['experiment']}/ledger",
    script:
        "../../scripts/certify.py"


rule merge:
    input:
        images="<results>/images.csv",
        counts=all_counts,
    output:
        "<results>/counts.parquet",
    log:
        "<logs>/merge.log",
    benchmark:
        "<benchmarks>/merge.tsv"
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        settings=settings(),
        partial=config["partial"],
    script:
        "../../scripts/merge.py"


rule certificates:
    input:
        "<results>/counts.parquet",
    output:
        parquet="<results>/certificates.parquet",
        csv="<results>/certificates.csv",
        bounds="<results>/bounds.parquet",
    log:
        "<logs>/certificates.log",
    benchmark:
        "<benchmarks>/certificates.tsv"
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        alpha=config["sampling"]["alpha"],
        mode=config["sampling"]["mode"],
        bound=config["bound"],
        version=COUNTS_VERSION,
    script:
        "../../scripts/certificates.py"
