# frozen_string_literal: true

require "etc"
require "fileutils"

# Bounds how many test files run at once on this machine, over all drivers that run side by side: one lock file a
# slot. Most tests mostly wait, hence three slots a core. A driver that dies gives its slots back.
class TestSlots
  COUNT = Integer(ENV.fetch("HEDDLE_TEST_SIDE_BY_SIDE", Etc.nprocessors * 3))

  # @param folder [String] the same for all drivers that share the slots
  def initialize(folder)
    FileUtils.mkdir_p(folder)
    @paths = Array.new(COUNT) { |index| File.join(folder, "slot-#{index}") }
  end

  # @return [File, nil] a slot, which unlocking gives back; nil while all are taken
  def take
    @paths.each do |path|
      slot = File.open(path, File::RDWR | File::CREAT, 0o666)
      return slot if slot.flock(File::LOCK_EX | File::LOCK_NB)

      slot.close
    end
    nil
  end
end
