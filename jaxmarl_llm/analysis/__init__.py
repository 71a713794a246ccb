"""Parts that training does not need: reports, doctor, planning, audits of finished runs, program searches."""
