-- The comparison of answers is imperative work, too.

drop trigger operations_bulk_lane on operations.operations;
create trigger operations_bulk_lane before insert on operations.operations
    for each row when (new.kind like 'projection.%' or new.kind in ('history.undo', 'import', 'import.cutover', 'import.compare'))
    execute function operations_bulk_lane();
