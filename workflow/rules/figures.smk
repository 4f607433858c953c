# The paper's figures, and one that it lacks: how the privacy budget is spent.


rule certified_accuracy_figure:
    input:
        "<results>/certificates.parquet",
    output:
        multiext("<results>/figures/certified_accuracy_votes{votes}", ".pdf", ".csv"),
        png=report(
            "<results>/figures/certified_accuracy_votes{votes}.png",
            caption="../report/certified_accuracy_figure.rst",
            category="Figures",
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
        style=figure_style("certified_accuracy"),
    script:
        "../../scripts/certified_accuracy_figure.py"


rule bounds_figure:
    input:
        "<results>/bounds.parquet",
    output:
        multiext("<results>/figures/bounds", ".pdf", ".csv"),
        png=report(
            "<results>/figures/bounds.png",
            caption="../report/bounds_figure.rst",
            category="Figures",
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
        style=figure_style("bounds"),
    script:
        "../../scripts/bounds_figure.py"


rule runtime_figure:
    input:
        "<results>/certificates.parquet",
    output:
        multiext("<results>/figures/runtime", ".pdf", ".csv"),
        png=report(
            "<results>/figures/runtime.png",
            caption="../report/runtime.rst",
            category="Figures",
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
        style=figure_style("runtime"),
    script:
        "../../scripts/runtime_figure.py"


rule vote_distribution_figure:
    input:
        counts="<results>/counts.parquet",
        certificates="<results>/certificates.parquet",
    output:
        multiext("<results>/figures/vote_distribution", ".pdf", ".csv"),
        png=report(
            "<results>/figures/vote_distribution.png",
            caption="../report/vote_distribution.rst",
            category="Figures",
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
        style=figure_style("vote_distribution_images"),
        votes=lambda wildcards: many_votes(),
        dataset=config["dataset"]["name"],
    script:
        "../../scripts/vote_distribution_figure.py"


rule denoise:
    input:
        images="<models>/images.csv",
        diffusion="<models>/diffusion.pt",
        classifier="<models>/classifier.pt",
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
        gpu=0 if config["device"] == "cpu" else 1,
        mem_mb=4000 if config["device"] == "cpu" else 16000,
        runtime=60,
    params:
        methods=sorted(active_methods()),
        models=[model_settings("diffusion"), model_settings("classifier")],
        scale=lambda wildcards: config["guidance_scale"].get(wildcards.sigma),
        start=active_methods().get("densepure", {}).get("start", "grid"),
        images=min(config["figures"]["denoised_images"], config["dataset"]["images"]),
        seed=config["seed"],
    script:
        "../../scripts/denoise.py"


rule denoised_figure:
    input:
        "<results>/denoised/sigma{sigma}.npz",
    output:
        multiext("<results>/figures/denoised_sigma{sigma}", ".pdf", ".csv"),
        png=report(
            "<results>/figures/denoised_sigma{sigma}.png",
            caption="../report/denoised.rst",
            category="Figures",
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
        style=figure_style("denoised"),
    script:
        "../../scripts/denoised_figure.py"


rule spend_budget:
    input:
        images="<models>/images.csv",
        diffusion="<models>/diffusion.pt",
        classifier="<models>/classifier.pt",
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
        gpu=0 if config["device"] == "cpu" else 1,
        mem_mb=4000 if config["device"] == "cpu" else 16000,
        runtime=60,
    params:
        scales={
            sigma_text(sigma): config["guidance_scale"].get(sigma_text(sigma))
            for sigma in config["sigmas"]
        },
        model=model_settings("diffusion"),
        trajectories=config["figures"]["budget_trajectories"],
        seed=config["seed"],
    script:
        "../../scripts/spend_budget.py"


rule budget_figure:
    input:
        "<results>/budget.csv",
    output:
        multiext("<results>/figures/budget", ".pdf", ".csv"),
        png=report(
            "<results>/figures/budget.png",
            caption="../report/budget.rst",
            category="Figures",
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
        style=figure_style("budget"),
    script:
        "../../scripts/budget_figure.py"


rule samples_figure:
    input:
        "<models>/samples.npy",
    output:
        report(
            "<models>/samples.png",
            caption="../report/samples.rst",
            category="Models",
            labels={"what": "samples of the diffusion model"},
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
        style=figure_style("samples"),
    script:
        "../../scripts/samples_figure.py"


rule loss_figure:
    input:
        diffusion="<models>/diffusion_loss.csv",
        classifier="<models>/classifier_loss.csv",
    output:
        multiext("<models>/loss", ".pdf", ".csv"),
        png=report(
            "<models>/loss.png",
            caption="../report/loss.rst",
            category="Models",
            labels={"what": "training loss"},
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
        style=figure_style("loss"),
    script:
        "../../scripts/loss_figure.py"
