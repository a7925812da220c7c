"""Estimators that come with Collage, registered as plug-ins under the entry-point group `collage.estimators`.

    measured            builds and times candidates on the device, and records them
    cached              records only
    replay              records of any machine
    learned             a cost model's predictions
    active              a cost model's predictions, and measurements that could change the plan

`cost_model` is the model behind `learned` and `active`; `features` are its inputs.
"""
