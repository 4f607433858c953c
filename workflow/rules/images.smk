# Which images are certified. The whole list is prepared once; an experiment takes the first so many of it, so
# that more images change nothing for those that were there before.


rule prepare_images:
    input:
        lists=image_lists(),
        source=images_source,
    output:
        "<models>/images.csv",
    log:
        "<logs>/prepare_images.log",
    benchmark:
        "<benchmarks>/prepare_images.tsv"
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        dataset=prepared_images(),
    script:
        "../../scripts/prepare_images.py"


rule images:
    input:
        "<models>/images.csv",
    output:
        "<results>/images.csv",
    log:
        "<logs>/images.log",
    benchmark:
        "<benchmarks>/images.tsv"
    conda:
        "../../envs/adds.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        images=config["dataset"]["images"],
    script:
        "../../scripts/images.py"
