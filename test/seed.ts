/** The sample records with which most servers of the tests start. */

/** Nobody has the ids that are left out: they are below the highest, so they count as deleted. */
export const seed = {
  zoos: [
    { id: 1, name: "Tierpark", city: "Berlin", country: "DE" },
    { id: 2, name: "Artis", city: "Amsterdam", country: "NL" },
    { id: 4, name: "Skansen", city: "Stockholm", country: "SE" },
  ],
  animals: [
    { id: 1, zoo_id: 1, animal_type_id: 3, name: "Ada" },
    { id: 2, zoo_id: 1, animal_type_id: 3, name: "Bo" },
  ],
  employees: [
    { id: 1, zoo_id: 1, name: "Eva", job_title: "Vet", email: "Eva@a.example" },
  ],
};
