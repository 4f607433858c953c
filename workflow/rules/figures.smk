# The paper's figures, and what it lacks: how the privacy budget is spent, what another bound gives, what the model makes.


rule follow_trajectory:
    input:
        images="<images>/images.csv",
        pixels="<images>/images.npy",
        classes=EXPERIMENT.config["dataset"]["classes"] or [],
        diffusion="<diffusion>/weights",
        classifier="<classifier>/weights",
    output:
        "<results>/trajectory.npz",
    log:
        "<logs>/follow_trajectory.log",
    benchmark:
        "<benchmarks>/follow_trajectory.tsv"
    conda:
        "../../envs/adds.yaml"
    threads: 1
    resources:
        gpu=NEEDS["gpu"],
        mem_mb=NEEDS["mem_mb"],
        runtime=60,
    params:
        trajectory=EXPERIMENT.trajectory(),
        machine=machine_of,
    script:
        "../../scripts/follow_trajectory.py"


rule pipeline_figure:
    input:
        "<results>/trajectory.npz",
    output:
        multiext("<results>/figures/pipeline", ".pdf", ".png", ".csv"),
        html=report(
            "<results>/figures/pipeline.html",
            category="Figures of the paper",
            labels={"figure": "pipeline"},
        ),
    log:
        "<logs>/figures/pipeline.log",
    benchmark:
        "<benchmarks>/figures/pipeline.tsv"
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        figure=EXPERIMENT.figure(),
    script:
        "../../scripts/pipeline_figure.py"


rule certified_accuracy_figure:
    input:
        "<results>/certificates.parquet",
    output:
        multiext(
            "<results>/figures/certified_accuracy_votes{votes}", ".pdf", ".png", ".csv"
        ),
        html=report(
            "<results>/figures/certified_accuracy_votes{votes}.html",
            category="Figures of the paper",
            labels={"figure": "certified accuracy, {votes} vote(s)"},
        ),
    log:
        "<logs>/figures/certified_accuracy_votes{votes}.log",
    benchmark:
        "<benchmarks>/figures/certified_accuracy_votes{votes}.tsv"
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        figure=EXPERIMENT.figure(
            bound=EXPERIMENT.config["bound"], **EXPERIMENT.samples()
        ),
    script:
        "../../scripts/certified_accuracy_figure.py"


rule bounds_figure:
    input:
        "<results>/certificates.parquet",
    output:
        multiext("<results>/figures/bounds", ".pdf", ".png", ".csv"),
        html=report(
            "<results>/figures/bounds.html",
            category="Other figures",
            labels={"figure": "two bounds"},
        ),
    log:
        "<logs>/figures/bounds.log",
    benchmark:
        "<benchmarks>/figures/bounds.tsv"
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        figure=EXPERIMENT.figure(),
    script:
        "../../scripts/bounds_figure.py"


rule runtime_figure:
    input:
        certificates="<results>/certificates.parquet",
        images="<results>/images.csv",
    output:
        multiext("<results>/figures/runtime", ".pdf", ".png", ".csv"),
        html=report(
            "<results>/figures/runtime.html",
            category="Figures of the paper",
            labels={"figure": "runtime"},
        ),
    log:
        "<logs>/figures/runtime.log",
    benchmark:
        "<benchmarks>/figures/runtime.tsv"
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        figure=EXPERIMENT.figure(
            bound=EXPERIMENT.config["bound"],
            images_per_job=EXPERIMENT.config["images_per_job"],
        ),
    script:
        "../../scripts/runtime_figure.py"


rule vote_distribution_figure:
    input:
        counts="<results>/counts.parquet",
        certificates="<results>/certificates.parquet",
        images="<results>/images.csv",
        classes=EXPERIMENT.config["dataset"]["classes"] or [],
    output:
        multiext("<results>/figures/vote_distribution", ".pdf", ".png", ".csv"),
        html=report(
            "<results>/figures/vote_distribution.html",
            category="Figures of the paper",
            labels={"figure": "vote distribution"},
        ),
    log:
        "<logs>/figures/vote_distribution.log",
    benchmark:
        "<benchmarks>/figures/vote_distribution.tsv"
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        figure=lambda wildcards: EXPERIMENT.figure(
            "vote_distribution_images",
            "vote_distribution_stage",
            bound=EXPERIMENT.config["bound"],
            votes=max(EXPERIMENT.methods["adds"]["votes"]),
            **EXPERIMENT.samples(),
        ),
    script:
        "../../scripts/vote_distribution_figure.py"


rule denoise:
    input:
        images="<images>/images.csv",
        pixels="<images>/images.npy",
        classes=EXPERIMENT.config["dataset"]["classes"] or [],
        diffusion="<diffusion>/weights",
        classifier="<classifier>/weights",
    output:
        "<results>/denoised/sigma{sigma}.npz",
    log:
        "<logs>/denoise_sigma{sigma}.log",
    benchmark:
        "<benchmarks>/denoise_sigma{sigma}.tsv"
    conda:
        "../../envs/adds.yaml"
    threads: 1
    resources:
        gpu=NEEDS["gpu"],
        mem_mb=NEEDS["mem_mb"],
        runtime=60,
    params:
        denoise=lambda wildcards: EXPERIMENT.denoising(wildcards.sigma),
        machine=machine_of,
    script:
        "../../scripts/denoise.py"


rule denoised_figure:
    input:
        "<results>/denoised/sigma{sigma}.npz",
    output:
        multiext("<results>/figures/denoised_sigma{sigma}", ".pdf", ".png", ".csv"),
        html=report(
            "<results>/figures/denoised_sigma{sigma}.html",
            category="Figures of the paper",
            labels={"figure": "denoised images, sigma {sigma}"},
        ),
    log:
        "<logs>/figures/denoised_sigma{sigma}.log",
    benchmark:
        "<benchmarks>/figures/denoised_sigma{sigma}.tsv"
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        figure=EXPERIMENT.figure(),
    script:
        "../../scripts/denoised_figure.py"


rule spend_budget:
    input:
        images="<images>/images.csv",
        pixels="<images>/images.npy",
        diffusion="<diffusion>/weights",
        classifier="<classifier>/weights",
    output:
        "<results>/budget.csv",
    log:
        "<logs>/spend_budget.log",
    benchmark:
        "<benchmarks>/spend_budget.tsv"
    conda:
        "../../envs/adds.yaml"
    threads: 1
    resources:
        gpu=NEEDS["gpu"],
        mem_mb=NEEDS["mem_mb"],
        runtime=60,
    params:
        budget=EXPERIMENT.budget(),
        machine=machine_of,
    script:
        "../../scripts/spend_budget.py"


rule budget_figure:
    input:
        "<results>/budget.csv",
    output:
        multiext("<results>/figures/budget", ".pdf", ".png", ".csv"),
        html=report(
            "<results>/figures/budget.html",
            category="Other figures",
            labels={"figure": "privacy budget"},
        ),
    log:
        "<logs>/figures/budget.log",
    benchmark:
        "<benchmarks>/figures/budget.tsv"
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        figure=EXPERIMENT.figure(),
    script:
        "../../scripts/budget_figure.py"


rule draw_samples:
    input:
        "<diffusion>/weights",
    output:
        "<results>/samples.npy",
    log:
        "<logs>/draw_samples.log",
    benchmark:
        "<benchmarks>/draw_samples.tsv"
    conda:
        "../../envs/adds.yaml"
    threads: 1
    resources:
        gpu=NEEDS["gpu"],
        mem_mb=NEEDS["mem_mb"],
        runtime=60,
    params:
        samples=EXPERIMENT.drawing_samples(),
        machine=machine_of,
    script:
        "../../scripts/draw_samples.py"


rule samples_figure:
    input:
        made="<results>/samples.npy",
        real="<images>/images.npy",
    output:
        multiext("<results>/figures/samples", ".pdf", ".png", ".csv"),
        html=report(
            "<results>/figures/samples.html",
            category="Models",
            labels={"figure": "samples of the diffusion model"},
        ),
    log:
        "<logs>/figures/samples.log",
    benchmark:
        "<benchmarks>/figures/samples.tsv"
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        figure=EXPERIMENT.figure(steps=EXPERIMENT.config["diffusion"]["steps"]),
    script:
        "../../scripts/samples_figure.py"


rule loss_figure:
    input:
        diffusion="<diffusion>/loss.csv",
        classifier="<classifier>/loss.csv",
    output:
        multiext("<results>/figures/loss", ".pdf", ".png", ".csv"),
        html=report(
            "<results>/figures/loss.html",
            category="Models",
            labels={"figure": "training loss"},
        ),
    log:
        "<logs>/figures/loss.log",
    benchmark:
        "<benchmarks>/figures/loss.tsv"
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        figure=EXPERIMENT.figure(),
    script:
        "../../scripts/loss_figure.py"
