"""CostModel: latency learned from records (the learned cost models of TVM, Chen et al. 2018, one level up).

    model = CostModel().fit(read_log("bench.jsonl.gz"))
    seconds = model.predict(workloads)
    low, high = model.predict_interval(workloads)
    model.save("cost.json")

scikit-learn's manner: the constructor only stores parameters, `fit` learns, and what was learned ends in an underscore.
"""

from __future__ import annotations

import copy
import importlib.metadata
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from collage.cost.cost import Cost
from collage.cost.estimator import Configurations, ErrorReport, Workload
from collage.errors import CollageError
from collage.plugins import Parameterised
from collage.records import Record
from estimators.cost_model.calibration import Calibration
from estimators.cost_model.data.training_set import TrainingSet, training_set
from estimators.cost_model.errors import error_report
from estimators.cost_model.file import ModelFile, damaged, read_model, write_model
from estimators.cost_model.fit import HeldOut, fit_all
from estimators.cost_model.names import model_name
from estimators.cost_model.pairwise_ratio import moved
from estimators.features.batch import FeatureTable, Roofline, Task, features_of

Items = Sequence[Workload | Record]
#: A backend with fewer records is calibrated by those of all backends.
LEAST_PER_CALIBRATION = 15


class CostModel(Parameterised):
    """Predicts the latency of candidates from their descriptions.

    Parameters
    ----------
    rounds
        Of boosting, for the correction of the analytic part.
    coverage
        Share of true latencies that the intervals shall hold.
    seed
        The same seed, threads and records give the same model.
    threads
        Of fitting and predicting; a fixed number, because sums of floating-point numbers depend on it. Tables are
        small, and one thread is faster than several that wait for each other.
    configurations
        Which versions and configurations of backends are learned from (`training_set`).

    Attributes
    ----------
    backends_
        Backend -> its model.
    ratios_
        How backends that take the same workloads differ.
    calibrations_
        Backend -> how its model was adapted to the device; empty where the model was learned there.
    device_, device_info_, protocol_
        Where and how the latencies were measured.
    training_
        Fingerprint and number of records, their numbers of threads, and how many were ignored, by reason; of a
        calibrated model also those of the calibration, and the processor that the rest comes from.
    training_set_, held_out_
        The records learned from, and the prediction for each when its network is left out; None for a loaded model.
    """

    def __init__(
        self,
        rounds: int = 400,
        coverage: float = 0.9,
        seed: int = 0,
        threads: int = 1,
        configurations: Configurations = "newest",
    ) -> None:
        self.rounds = rounds
        self.coverage = coverage
        self.seed = seed
        self.threads = threads
        self.configurations = configurations

    def fit(
        self,
        records: Iterable[Record],
        groups: Sequence[object] | None = None,
        designed: Sequence[bool] | None = None,
    ) -> CostModel:
        """Learn from records.

        Parameters
        ----------
        records
            At least 30 valid candidates of one device and one measuring protocol.
        groups
            The network of each record; None takes a pause between records for the end of a tuning run.
        designed
            Which records are of designed blocks (`collage records collect --designed`); the drift of the machine is
            taken out of them (`estimators.cost_model.data.drift`).

        Raises
        ------
        CollageError
            Too few records, or of several devices or protocols, or with malformed descriptions.
        """
        data = training_set(records, groups, designed, self.configurations)
        newest = data.records[-1]
        self.device_ = newest.key.device
        # Of the machines that are alike, which one it was is nobody's business who uses the model.
        self.device_info_ = {name: said for name, said in (newest.device or {}).items() if name != "host"}
        self.protocol_ = newest.key.protocol
        self.training_ = _facts_of(data)
        self.calibrations_: dict[str, Calibration] = {}
        table = self._table([_task_of_record(record) for record in data.records])
        settings = {"seed": self.seed, "nthread": self.threads}
        fitted = fit_all(data, table, self.rounds, self.coverage, settings)
        self.backends_, self.ratios_ = fitted.backends, fitted.ratios
        self.training_set_: TrainingSet | None = fitted.data
        self.held_out_: HeldOut | None = fitted.held_out
        return self

    def calibrated(self, records: Iterable[Record]) -> CostModel:
        """This model, adapted to the machine, the threads and the measuring protocol of a few records; this one stays
        as it is.

        Raises
        ------
        CollageError
            As `fit`; or the records are of a backend that the model does not know.
        """
        self._require_fitted()
        data = training_set(records, configurations=self.configurations)
        newest = data.records[-1]
        names = np.array([model_name(record) for record in data.records])
        self._require_known(set(names))
        model = self._of_device(newest.key.device, dict(newest.device or {}), _facts_of(data))
        model.protocol_ = newest.key.protocol
        tasks = [_task_of_record(record) for record in data.records]
        model.held_out_ = model._calibrate(tasks, names, data.log_seconds)
        model.training_set_ = replace(data, groups=np.arange(len(names)))
        return model

    def adapted(self, costs: Mapping[Workload, Cost], device: str, device_info: Mapping[str, Any]) -> CostModel:
        """This model, adapted to the machine on which a few workloads were measured, however they were measured; this
        one stays as it is.

        Parameters
        ----------
        costs
            Finite ones, of backends that the model knows.
        device, device_info
            Fingerprint of the machine, and what records say of it.
        """
        self._require_fitted()
        tasks, names = self._asked(list(costs))
        facts = {"records": len(costs), "threads": sorted({workload.threads for workload in costs})}
        model = self._of_device(device, dict(device_info), facts)
        model._calibrate(tasks, names, np.log([cost.seconds for cost in costs.values()]))
        model.training_set_ = model.held_out_ = None
        return model

    def _of_device(self, device: str, device_info: dict[str, Any], calibration: dict[str, Any]) -> CostModel:
        """This model, on another machine, for which it is not calibrated yet."""
        model = copy.copy(self)
        model.device_, model.device_info_, model.calibrations_ = device, device_info, {}
        learned_on = str(self.device_info_.get("model") or self.device_)
        model.training_ = {**self.training_, "calibration": calibration, "learned_on": learned_on}
        return model

    def _calibrate(self, tasks: Sequence[Task], names: np.ndarray, log_seconds: np.ndarray) -> HeldOut:
        """Fit the calibration of each backend; returns the prediction of each task by the others."""
        table = self._table(tasks)
        predicted, half = self._predict_table(table, names)
        without = np.zeros(len(names))
        general, of_all = Calibration.fit(table, predicted, half, log_seconds, self.coverage)
        for name in self.backends_:
            chosen = np.flatnonzero(names == name)
            self.calibrations_[name], without[chosen] = general, of_all[chosen]
            if len(chosen) >= LEAST_PER_CALIBRATION:
                self.calibrations_[name], without[chosen] = Calibration.fit(
                    table.take(chosen), predicted[chosen], half[chosen], log_seconds[chosen], self.coverage
                )
        widening = np.array([self.calibrations_[name].widening for name in names])
        return HeldOut(without, widening * half)

    def predict(self, items: Items) -> np.ndarray:
        """Seconds of each workload (or of the workload of each record).

        Raises
        ------
        CollageError
            The model is not fitted, knows nothing of a backend or of a record's device, or a description cannot be
            read.
        """
        return np.asarray(np.exp(self._predict(items)[0]))

    def predict_interval(self, items: Items) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends, in seconds, of intervals that hold `coverage` of the latencies of a network never seen.

        Raises as `predict`.
        """
        center, half = self._predict(items)
        return np.exp(center - half), np.exp(center + half)

    def far(self, items: Items) -> np.ndarray:
        """bool (items,): which are unlike anything that the model learned from, in size or in kind; raises as
        `predict`.
        """
        result = np.zeros(len(items), dtype=bool)
        if items:
            tasks, names = self._asked(items)
            table = self._table(tasks)
            for name in sorted(set(names)):
                chosen = np.flatnonzero(names == name)
                result[chosen] = self.backends_[name].far(table.take(chosen))
        return result

    def score(self, records: Iterable[Record]) -> float:
        """R² of the logarithm of latency over the valid candidates; raises as `predict`."""
        valid = [r for r in records if r.key.kind == "candidate" and r.seconds]
        if not valid:
            raise CollageError("there are no valid candidates to score a cost model on")
        truth = np.log([r.seconds for r in valid if r.seconds])
        rest = truth - np.log(self.predict(valid))
        spread = float(np.sum((truth - truth.mean()) ** 2))
        return 1.0 - float(np.sum(rest**2)) / max(spread, 1e-12)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one JSON file (`estimators.cost_model.file`). Raises CollageError when it cannot be written."""
        self._require_fitted()
        content = ModelFile(
            libraries={name: importlib.metadata.version(name) for name in ("xgboost", "numpy", "scikit-learn")},
            training=self.training_,
            device=self.device_,
            device_info=self.device_info_,
            protocol=self.protocol_,
            parameters=self.get_params(),
            backends=self.backends_,
            ratios=self.ratios_,
            calibrations=self.calibrations_,
        )
        write_model(path, content)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CostModel:
        """Read what `save` wrote. Raises CollageError when the file is unreadable, no model, or of another version."""
        content = read_model(path)
        try:
            model = cls(**content.parameters)
        except TypeError as error:
            raise damaged(path, error) from error
        model.backends_, model.ratios_ = content.backends, content.ratios
        model.calibrations_ = content.calibrations
        model.device_, model.device_info_ = content.device, content.device_info
        model.protocol_, model.training_ = content.protocol, content.training
        model.training_set_ = model.held_out_ = None
        return model

    def errors(self) -> ErrorReport:
        """Cross-validated errors. Raises CollageError for a model that was loaded: its file lacks the records."""
        self._require_fitted()
        if self.training_set_ is None or self.held_out_ is None:
            raise CollageError("only a model that was just fitted knows its cross-validated errors")
        return error_report(self.training_set_, self.held_out_, self.coverage)

    def _predict(self, items: Items) -> tuple[np.ndarray, np.ndarray]:
        tasks, names = self._asked(items)
        return self._predict_table(self._table(tasks), names) if tasks else (np.zeros(0), np.zeros(0))

    def _asked(self, items: Items) -> tuple[list[Task], np.ndarray]:
        """What features are made of, and the backend, of each."""
        self._require_fitted()
        tasks = [_task_of_record(item) if isinstance(item, Record) else _task_of_workload(item) for item in items]
        names = np.array([model_name(item) for item in items])
        self._require_known(set(names))
        for item in items:
            if isinstance(item, Record) and item.key.device != self.device_:
                raise CollageError(f"the cost model is of device {self.device_}, the record of {item.key.device}")
        return tasks, names

    def _predict_table(self, table: FeatureTable, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log seconds, and half-widths of their intervals."""
        center, half = np.zeros(len(names)), np.zeros(len(names))
        for name in sorted(set(names)):
            chosen = np.flatnonzero(names == name)
            part = table.take(chosen)
            alone, width = self.backends_[name].predict(part)
            predicted = moved(self.ratios_, self.backends_, name, part, alone), width
            if name in self.calibrations_:
                predicted = self.calibrations_[name].apply(part, *predicted)
            center[chosen], half[chosen] = predicted
        return center, half

    def _require_known(self, names: set[str]) -> None:
        unknown = sorted(names - set(self.backends_))
        if unknown:
            raise CollageError(
                f"the cost model knows {', '.join(sorted(self.backends_))} and nothing of {', '.join(unknown)}: "
                "train it on records of that backend"
            )

    def _table(self, tasks: Sequence[Task]) -> FeatureTable:
        try:
            return features_of(tasks, Roofline.of(self.device_info_))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise CollageError(f"a workload's description cannot be read: {type(error).__name__}: {error}") from error

    def _require_fitted(self) -> None:
        if not hasattr(self, "backends_"):
            raise CollageError("this cost model is not fitted: call fit(records), or CostModel.load(path)")


def _facts_of(data: TrainingSet) -> dict[str, Any]:
    return {
        "fingerprint": data.fingerprint,
        "records": len(data.records),
        "designed": int(data.designed.sum()),
        "threads": sorted({record.key.threads for record in data.records}),
        "ignored": data.ignored,
    }


def _task_of_record(record: Record) -> Task:
    if not record.description:
        raise CollageError(f"the record of {record.label or record.key.structure} has no description to predict from")
    return Task(record.key.structure, record.description, record.key.composites, record.key.threads)


def _task_of_workload(workload: Workload) -> Task:
    return Task(workload.structure, workload.description, workload.composites, workload.threads)
