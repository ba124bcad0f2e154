# frozen_string_literal: true

desc "Keep 1000 tasks at work for two minutes among random faults; SECONDS=600, SEED=1, HEDDLE_BACKEND=epoll"
task soak: :compile do
  ruby "-W:no-experimental", "-Ilib", "test/support/soak.rb", ENV.fetch("SECONDS", "120"),
    ENV.fetch("SEED", Random.new_seed % 100_000).to_s
end
