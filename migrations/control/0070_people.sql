-- People: whether they may come in, and what stands beside the log about them.

-- Tables of desired, also read by the rebuild, which puts another schema in the place of desired.

-- What follows is not desired.

-- Everything below is also read by the rebuild, which puts another schema in the place of desired.

-- Applies one change of users and tenants.
create procedure desired_apply_people(_c jsonb) language plpgsql as $$
begin
    raise exception 'unknown change %', _c->>'do';
end $$;
