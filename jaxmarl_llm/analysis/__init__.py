"""What no training needs: reports, the doctor, planning, audits of finished runs, searches for programs."""
