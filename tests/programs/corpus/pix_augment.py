"""dm_pix: image augmentation op by op and under vmap: colours, warps, blur, crops, SSIM."""

import dm_pix as pix
import jax

PACKAGES = ("dm-pix",)
TOLERANCE = (1e-4, "float32")


def program():
    images = jax.random.uniform(jax.random.key(0), (4, 32, 32, 3))

    def augment(key, image):
        keys = jax.random.split(key, 5)
        image = pix.random_flip_left_right(keys[0], image)
        image = pix.random_brightness(keys[1], image, 0.2)
        image = pix.random_saturation(keys[2], image, 0.5, 1.5)
        image = pix.random_hue(keys[3], image, 0.1)
        return pix.random_crop(keys[4], image, (24, 24, 3))

    def run():
        keys = jax.random.split(jax.random.key(1), 4)
        cropped = jax.vmap(augment)(keys, images)
        blurred = pix.gaussian_blur(images, 1.5, 7)
        turned = pix.rotate(images[0], angle=0.4)
        return cropped, blurred, turned, pix.ssim(images, blurred), pix.rgb_to_hsv(images)

    return run
