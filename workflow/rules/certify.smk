# From images to certificates: one certify job per method, sigma, number of votes and shard of images.


rule identify:
    # An empty file, named by what something is made by: another configuration's is younger than what is there.
    output:
        "<results>/identity/{of}/{identity}",
    log:
        "<logs>/identify/{of}/{identity}.log",
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
        mem_mb=asking("mem_mb"),
        runtime=asking("runtime"),
    params:
        job=job_of,
        machine=machine_of,
    script:
        "../../scripts/certify.py"


rule merge:
    input:
        images="<results>/images.csv",
        networks=EXPERIMENT.of_all_networks("weights"),
        descriptions=EXPERIMENT.of_all_networks("description.json"),
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
        mem_mb=asking("mem_mb", EXPERIMENT.needs_of_results()),
        runtime=asking("runtime", EXPERIMENT.needs_of_results()),
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
        identity=f"<results>/{EXPERIMENT.certificates_file()}",
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
        mem_mb=asking("mem_mb", EXPERIMENT.needs_of_results()),
        runtime=asking("runtime", EXPERIMENT.needs_of_results()),
    params:
        certificates={
            "how": EXPERIMENT.certificates(),
            "look": EXPERIMENT.look(),
        },
    script:
        "../../scripts/certificates.py"
