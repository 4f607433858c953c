# From images to certificates: one certify job per method, sigma, number of votes and shard of images.


rule identify:
    output:
        "<results>/identity/{method}/sigma{sigma}/votes{votes}/{identity}",
    log:
        "<logs>/identify/{method}/sigma{sigma}/votes{votes}/{identity}.log",
    localrule: True
    conda:
        "../../envs/adds.yaml"
    params:
        folder=subpath(output[0], parent=True),
    shell:
        "rm -f {params.folder}/* && touch {output} 2> {log}"


rule certify:
    input:
        unpack(networks_of),
        images="<images>/images.csv",
        pixels="<images>/images.npy",
        leader=leader_counts,
        identity=identity_of,
        checked=checks_of,
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
        gpu=gpus_of,
        mem_mb=megabytes_of,
        runtime=minutes_of,
    params:
        job=job_of,
        machine=machine_of,
    script:
        "../../scripts/certify.py"


rule merge:
    input:
        images="<results>/images.csv",
        networks=all_weights,
        descriptions=all_descriptions,
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
        experiment={
            "identities": EXPERIMENT.identities(),
            "sampling": EXPERIMENT.sampling(),
            "partial": EXPERIMENT.partial,
        },
    script:
        "../../scripts/merge.py"


rule certificates:
    input:
        "<results>/counts.parquet",
    output:
        parquet="<results>/certificates.parquet",
        csv="<results>/certificates.csv",
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
        certificates={
            "how": EXPERIMENT.certificates(),
            "look": EXPERIMENT.look(),
        },
    script:
        "../../scripts/certificates.py"
