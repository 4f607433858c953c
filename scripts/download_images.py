"""Download the archive of the data set's images, where no local copy is configured."""

from adds.fetch import Expected, fetch
from adds.logs import configure_logging

HINTS = {
    "imagenet": "ImageNet needs an account: get ILSVRC2012_img_val.tar at image-net.org and set dataset.source to "
    "it, or to a folder with its images.",
    "cifar10": "Set dataset.source to your own copy of cifar-10-binary.tar.gz.",
}

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "download_images")
    download, hint = snakemake.params.download, HINTS[snakemake.params.dataset]
    fetch(download["urls"], snakemake.output[0], Expected.from_settings(download), hint=hint)
