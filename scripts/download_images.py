"""Download the archive of ImageNet's validation images, where no local copy is configured."""

from adds.fetch import Expected, fetch
from adds.logs import configure_logging

HINT = (
    "ImageNet needs an account: get ILSVRC2012_img_val.tar at image-net.org and set dataset.source to it, "
    "or to a folder with its images."
)

if __name__ == "__main__":
    configure_logging(snakemake.log[0], "download_images")
    download = snakemake.params.download
    fetch(download["urls"], snakemake.output[0], Expected.from_settings(download), hint=HINT)
