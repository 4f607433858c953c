# The two networks: trained here for the embedded experiment.


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
    conda:
        "../../envs/adds.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        model=model_settings("diffusion"),
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
        model=model_settings("classifier"),
        training=config["classifier"].get("training"),
        seed=config["seed"],
    script:
        "../../scripts/train_classifier.py"
