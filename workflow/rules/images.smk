# Which images are certified: a list and a source become pixels, decoded once, and a table of what they are. All of the
# list is read; an experiment takes the first so many of it, so that more images change nothing for those before.


if EXPERIMENT.archive:

    rule download_images:
        output:
            list(EXPERIMENT.archive_files()),
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
            download=EXPERIMENT.download_of_images(),
        script:
            "../../scripts/download_images.py"


rule images:
    input:
        list=EXPERIMENT.config["dataset"]["list"],
        classes=EXPERIMENT.config["dataset"]["classes"] or [],
        source=EXPERIMENT.images_source,
        # A folder's own time doesn't change with a file in it.
        files=EXPERIMENT.files,
    output:
        pixels="<images>/images.npy",
        table="<images>/images.csv",
    log:
        "<logs>/images.log",
    benchmark:
        "<benchmarks>/images.tsv"
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=asking("mem_mb", EXPERIMENT.needs_of_images()),
        runtime=asking("runtime", EXPERIMENT.needs_of_images()),
    params:
        images=EXPERIMENT.recipe("images"),
    script:
        "../../scripts/images.py"


rule select_images:
    input:
        images="<images>/images.csv",
        identity=f"<results>/{EXPERIMENT.images_file()}",
    output:
        "<results>/images.csv",
    log:
        "<logs>/select_images.log",
    localrule: True
    conda:
        "../../envs/adds.yaml"
    params:
        lines=EXPERIMENT.images + 1,
    shell:
        "head -n {params.lines} {input.images} > {output} 2> {log}"
