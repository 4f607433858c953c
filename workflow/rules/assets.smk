# The two networks: trained here for the embedded experiment, downloaded for the others.


rule train_diffusion:
    output:
        weights="<models>/diffusion.pt",
        description="<models>/diffusion.json",
        loss="<models>/diffusion_loss.csv",
        samples="<models>/samples.npy",
    log:
        "<logs>/train_diffusion.log",
    benchmark:
        "<benchmarks>/train_diffusion.tsv"
    # Nearly everything waits for it, and meanwhile there is something to do for the other cores.
    priority: 3
    conda:
        "../../envs/adds.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        model={
            key: config["diffusion"][key] for key in ("unet", "schedule", "timesteps")
        },
        training=config["diffusion"].get("training"),
        seed=config["seed"],
    script:
        "../../scripts/train_diffusion.py"


rule train_classifier:
    output:
        weights="<models>/classifier.pt",
        description="<models>/classifier.json",
        loss="<models>/classifier_loss.csv",
    log:
        "<logs>/train_classifier.log",
    benchmark:
        "<benchmarks>/train_classifier.tsv"
    conda:
        "../../envs/adds.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        training=config["classifier"].get("training"),
        seed=config["seed"],
    script:
        "../../scripts/train_classifier.py"


rule download_diffusion:
    input:
        config["diffusion"].get("checkpoint") or [],
    output:
        weights="<models>/diffusion.pt",
        description="<models>/diffusion.json",
    log:
        "<logs>/download_diffusion.log",
    benchmark:
        "<benchmarks>/download_diffusion.tsv"
    retries: 3
    localrule: True
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        download=config["diffusion"].get("download"),
    script:
        "../../scripts/download_diffusion.py"


rule download_classifier:
    output:
        weights="<models>/classifier.pt",
        description="<models>/classifier.json",
    log:
        "<logs>/download_classifier.log",
    benchmark:
        "<benchmarks>/download_classifier.tsv"
    retries: 3
    localrule: True
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        name=config["classifier"]["name"],
        revision=config["classifier"].get("revision"),
        classes=config["classifier"]["classes"],
    script:
        "../../scripts/download_classifier.py"


rule compile_diffusion:
    output:
        package="<models>/compiled.pt2",
        description="<models>/compiled.json",
    log:
        "<logs>/compile_diffusion.log",
    benchmark:
        "<benchmarks>/compile_diffusion.tsv"
    # The longest jobs wait for it.
    priority: 2
    conda:
        "../../envs/adds.yaml"
    threads: 1
    resources:
        gpu=0 if config["device"] == "cpu" else 1,
        mem_mb=4000 if on_small_networks() else 32000,
        runtime=60,
    params:
        unet=config["diffusion"]["unet"],
        half_precision=config["diffusion"]["half_precision"],
    script:
        "../../scripts/compile_diffusion.py"


rule download_images:
    output:
        f"<models>/{archive()}",
    log:
        "<logs>/download_images.log",
    benchmark:
        "<benchmarks>/download_images.tsv"
    retries: 3
    localrule: True
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        dataset=config["dataset"]["name"],
        download=config["dataset"].get("download"),
    script:
        "../../scripts/download_images.py"


# Models come from one of the two.
if config["diffusion"]["source"] == "train":

    ruleorder: train_diffusion > download_diffusion
    ruleorder: train_classifier > download_classifier

else:

    ruleorder: download_diffusion > train_diffusion
    ruleorder: download_classifier > train_classifier
