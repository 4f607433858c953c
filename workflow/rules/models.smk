# The networks, each in a folder that is named by what makes it: taken from a file, downloaded, or trained here.


if not IS_FOLDER:

    rule fetch_weights:
        # The published networks: of an address, Snakemake takes files of text only.
        input:
            workflow.source_path("../../weights/README.md"),
        output:
            f"{FETCHED}/weights/{{file}}.safetensors",
        log:
            "<logs>/fetch_weights/{file}.log",
        retries: 3
        localrule: True
        conda:
            "../../envs/adds.yaml"
        params:
            url=address_of,
        script:
            "../../scripts/fetch_weights.py"


if EXPERIMENT.trains:

    rule train_diffusion:
        input:
            source=EXPERIMENT.training_source(EXPERIMENT.recipe("diffusion")),
        output:
            weights="<diffusion>/weights",
            description="<diffusion>/description.json",
            loss="<diffusion>/loss.csv",
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
            runtime=480,
        params:
            recipe=EXPERIMENT.recipe("diffusion"),
        script:
            "../../scripts/train_diffusion.py"

    rule train_classifier:
        input:
            source=EXPERIMENT.training_source(EXPERIMENT.recipe("classifier")),
        output:
            weights="<classifier>/weights",
            description="<classifier>/description.json",
            loss="<classifier>/loss.csv",
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
            recipe=EXPERIMENT.recipe("classifier"),
        script:
            "../../scripts/train_classifier.py"

else:

    rule obtain_diffusion:
        input:
            EXPERIMENT.config["diffusion"]["weights"] or [],
        output:
            weights="<diffusion>/weights",
            description="<diffusion>/description.json",
        log:
            "<logs>/obtain_diffusion.log",
        benchmark:
            "<benchmarks>/obtain_diffusion.tsv"
        retries: 3
        localrule: True
        conda:
            "../../envs/adds.yaml"
        resources:
            mem_mb=2000,
            runtime=30,
        params:
            recipe=EXPERIMENT.recipe("diffusion"),
        script:
            "../../scripts/obtain_diffusion.py"

    rule obtain_classifier:
        input:
            EXPERIMENT.config["classifier"]["weights"] or [],
            EXPERIMENT.config["classifier"]["file"] or [],
        output:
            weights="<classifier>/weights",
            description="<classifier>/description.json",
        log:
            "<logs>/obtain_classifier.log",
        benchmark:
            "<benchmarks>/obtain_classifier.tsv"
        retries: 3
        localrule: True
        conda:
            "../../envs/adds.yaml"
        resources:
            mem_mb=2000,
            runtime=30,
        params:
            recipe=EXPERIMENT.recipe("classifier"),
        script:
            "../../scripts/obtain_classifier.py"


rule make_reader:
    # A classifier of noised images, for one sigma: given, or trained on training images, or made of them.
    input:
        made_from=reader_sources,
        source=training_source,
    output:
        weights="<resources>/{reader}-sigma{sigma}-{recipe}/weights",
        description="<resources>/{reader}-sigma{sigma}-{recipe}/description.json",
    log:
        "<logs>/make_reader/{reader}-sigma{sigma}-{recipe}.log",
    benchmark:
        "<benchmarks>/make_reader/{reader}-sigma{sigma}-{recipe}.tsv"
    # Certification waits for it.
    priority: 2
    conda:
        "../../envs/adds.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        recipe=reader_of,
    script:
        "../../scripts/make_reader.py"


rule compile_diffusion:
    # Where `diffusion.compile` isn't set it does nothing, so that jobs have the same inputs either way: that a network
    # is compiled is no reason to sample again. A job that finds nothing compiled for its processor makes it.
    output:
        touch("<compiled>/asked"),
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
        gpu=NEEDS["gpu"] if EXPERIMENT.machine()["compile"] else 0,
        mem_mb=2 * NEEDS["mem_mb"] if EXPERIMENT.machine()["compile"] else 500,
        runtime=60,
    params:
        recipe=EXPERIMENT.recipe("compiled"),
        machine=machine_of,
    script:
        "../../scripts/compile_diffusion.py"


rule check_models:
    # On the first images of the list, before thousands of GPU-hours: are these the networks that are meant?
    input:
        images="<images>/images.csv",
        pixels="<images>/images.npy",
        weights=weights_of,
    output:
        "<results>/models/{network}-{recipe}.json",
    log:
        "<logs>/check_models/{network}-{recipe}.log",
    benchmark:
        "<benchmarks>/check_models/{network}-{recipe}.tsv"
    # All certification waits for it.
    priority: 3
    conda:
        "../../envs/adds.yaml"
    threads: 1
    resources:
        gpu=NEEDS["gpu"],
        mem_mb=NEEDS["mem_mb"],
        runtime=60,
    params:
        check=check_of,
        limit=limit_of,
        machine=machine_of,
    script:
        "../../scripts/check_models.py"


rule fetch:
    # Everything that comes from elsewhere: where nodes have no network, it is asked for where there is one.
    input:
        "<images>/images.npy",
        EXPERIMENT.from_elsewhere(),
    localrule: True
